"""Which processes live, and whether Redis takes writes, for code that only looks: as far as that can be read."""

from __future__ import annotations

from typing import Any

import msgspec

from fleet.errors import StateError
from fleet.state.connect import Client, translated
from fleet.state.keys import FleetKeys
from fleet.state.registry import Registry
from fleet.state.writes import refusal

_BEHIND_MS = 5000
"""A living process says so each second: one that was this far behind the last heartbeat in Redis was dead by then."""


async def processes(client: Client, *, now_ms: str = "") -> list[dict[str, Any]]:
    """What every living process says of itself; while Redis refuses writes, those that lived when it took the last."""
    registry = Registry(client, now_ms=now_ms)
    try:
        return await registry.processes()
    except StateError:
        # Asking for the living clears the dead away, and that is a write.
        if not await refusal(client):
            raise
    now = int(now_ms or await registry.clock_ms())
    with translated():
        beats = dict(await client.zrange(FleetKeys.beats, 0, -1, withscores=True))
        records = await client.hgetall(FleetKeys.processes)
    # No process can say that it lives: in the end all would be dead by the clock.
    dead_by = min(now, max(beats.values(), default=0) - _BEHIND_MS)
    return [msgspec.json.decode(body) for name, body in sorted(records.items()) if beats.get(name, 0) > dead_by]


async def refused(client: Client) -> str:
    """What Redis answers to a write, '' if it takes it."""
    try:
        said = await refusal(client)
    except StateError:
        return ""  # no answer is not a refusal, and the caller's reads meet it too
    # If only we may not write, the fleet has no trouble.
    return "" if said.startswith("NOPERM") else said.rstrip(".")


def in_words(refused: str) -> str:
    return (
        f"Redis refuses writes ({refused}): nothing is taken, delivered or acknowledged until it takes them again"
        " (see fleet doctor)"
    )
