"""What all processes ever counted, summed up in Redis: it goes on when one of them ends, however it ends.

A process says what it counted since its start, never what it counted since it said so last: a call that was
repeated, or whose reply was lost, adds nothing. One that dies loses what it counted since its last heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fleet.state.connect import Client, translated
from fleet.state.keys import FleetKeys
from fleet.state.scripts import SEP, script

Counter = tuple[str, str, str]
"""What it is of, whose, and which: ("pool", "POOL-HIGH", "SUCCESS")."""

TTL_MS = 24 * 3600 * 1000
"""For how long a process may be stopped and still be known; it is refreshed each hour."""
_REFRESH_MS = 3600 * 1000
_AT_ONCE = 1000


class Tally:
    """One process's counters on their way into the totals."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._keys = [FleetKeys.totals, FleetKeys.tallied + name]
        self._said: dict[Counter, int] = {}
        self._said_ms = 0.0

    async def add(self, counted: Mapping[Counter, int], *, now_ms: float) -> None:
        """Say what is new of it; costs nothing where nothing is."""
        new = {counter: value for counter, value in counted.items() if value != self._said.get(counter, 0)}
        if new or now_ms - self._said_ms > _REFRESH_MS:
            known = await self._add(new)
            if not known and self._said:
                # Redis was wiped: the totals begin anew, with all that we know.
                await self._add(counted)
            self._said.update(new)
            self._said_ms = now_ms

    async def _add(self, counted: Mapping[Counter, int]) -> bool:
        known, pairs = True, list(counted.items())
        for first in range(0, max(len(pairs), 1), _AT_ONCE):
            arguments: list[str | int] = [TTL_MS]
            for counter, value in pairs[first : first + _AT_ONCE]:
                arguments += (SEP.join(counter), value)
            answer = await script("tally")(self._client, self._keys, arguments)
            known = known and (bool(answer) or first > 0)
        return known


async def totals(client: Client) -> dict[Counter, int]:
    with translated():
        found = await client.hgetall(FleetKeys.totals)
    return {_counter(name): int(value) for name, value in found.items()}


async def forget(client: Client, counters: Iterable[Counter]) -> None:
    """Of a pool or a queue that is gone: what has no end in number must have one in time."""
    names = [SEP.join(counter) for counter in counters]
    for first in range(0, len(names), _AT_ONCE):
        with translated():
            await client.hdel(FleetKeys.totals, *names[first : first + _AT_ONCE])


def counters_of(record: Mapping[str, Any]) -> dict[Counter, int]:
    """All that a process counts, as its heartbeat says it."""
    counted: dict[Counter, int] = {}
    for pool, outcomes in record.get("totals", {}).items():
        counted |= {("pool", pool, name): value for name, value in outcomes.items()}
    for name, value in record.get("counts", {}).items():
        if isinstance(value, dict):
            counted |= {("queue", name, what): number for what, number in value.items()}
        else:
            counted["process", str(record.get("role", "")), name] = value
    for metric, of_labels in record.get("histograms", {}).items():
        for label, values in of_labels.items():
            counted |= {(metric, label, str(place)): value for place, value in enumerate(values) if value}
    return counted


def _counter(name: str) -> Counter:
    kind, of, which = name.split(SEP)
    return kind, of, which
