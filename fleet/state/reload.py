"""Asking the syncer that leads to read its sources now, and hearing what came of it."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from fleet.state import observe
from fleet.state.connect import Client, translated
from fleet.state.keys import CHANGED_CHANNEL
from fleet.state.registry import Registry

_RELOAD = "reload:"
"""On `fleet:changed`. Other processes that hear it look for a new revision, find none, and do nothing."""
ANSWER_WITHIN_S = 20.0
"""A syncer looks once a second, and a source that does not answer is given up after ten."""
_LOOK_EVERY_S = 0.1
_ASK_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What the syncer that leads made of it."""

    syncer: str
    """'' where none is running."""
    answered: bool
    error: str = ""
    """Why the last good configuration stays."""


def request_of(what: str) -> str:
    """Which reload is asked for by a message of `fleet:changed`; '' for none."""
    return what.removeprefix(_RELOAD) if what.startswith(_RELOAD) else ""


async def request_reload(client: Client) -> str:
    """Returns the request's name, under which the syncer says what came of it."""
    request = secrets.token_hex(8)
    await _ask(client, request)
    return request


async def reload(client: Client, *, within_s: float = ANSWER_WITHIN_S) -> Reloaded:
    """Ask, and wait until the syncer that leads has answered. One that takes the lead meanwhile is asked too."""
    registry, loop = Registry(client), asyncio.get_running_loop()
    request, deadline, ask_at, leader = "", loop.time() + within_s, 0.0, ""
    while True:
        syncers = {str(one["name"]): one for one in await registry.processes() if one.get("role") == "syncer"}
        if not syncers and not request:
            return Reloaded("", answered=False)
        if not request:
            request = secrets.token_hex(8)
        leader = (await observe.syncer_leader(client)).owner or leader or min(syncers, default="")
        answer = syncers.get(leader, {}).get("reloaded", {})
        if answer.get("request") == request:
            return Reloaded(leader, answered=True, error=answer["error"])
        if loop.time() >= deadline:
            return Reloaded(leader, answered=False)
        if loop.time() >= ask_at:
            # One that was just about to subscribe, or to lead, has not heard us.
            await _ask(client, request)
            ask_at = loop.time() + _ASK_EVERY_S
        await asyncio.sleep(_LOOK_EVERY_S)  # its answer is in its heartbeat, and no signal tells of that


async def _ask(client: Client, request: str) -> None:
    with translated():
        await client.publish(CHANGED_CHANNEL, _RELOAD + request)
