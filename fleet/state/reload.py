"""Asking the syncers to read their sources now, and hearing what came of it."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from fleet.state.connect import Client, translated
from fleet.state.keys import CHANGED_CHANNEL
from fleet.state.registry import Registry

_RELOAD = "reload:"
"""On `fleet:changed`. Others who hear it look for a new revision, find none, and mind nothing."""
ANSWER_WITHIN_S = 20.0
"""A syncer looks once a second, and a source that does not answer is given up after ten."""
_LOOK_EVERY_S = 0.1
_ASK_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What the syncers that lived made of it."""

    good: list[str]
    failed: dict[str, str]
    """By their name, why."""
    silent: list[str]


def request_of(what: str) -> str:
    """Which reload is asked for by a message of `fleet:changed`; '' for none."""
    return what.removeprefix(_RELOAD) if what.startswith(_RELOAD) else ""


async def request_reload(client: Client) -> str:
    """Returns the request's name, under which a syncer says what came of it."""
    request = secrets.token_hex(8)
    await _ask(client, request)
    return request


async def reload(client: Client, *, within_s: float = ANSWER_WITHIN_S) -> Reloaded:
    """Ask, and wait until every syncer that lives has answered."""
    registry, loop = Registry(client), asyncio.get_running_loop()
    waiting = {str(one["name"]) for one in await registry.processes() if one.get("role") == "syncer"}
    found = Reloaded([], {}, [])
    request = await request_reload(client) if waiting else ""
    now = loop.time()
    deadline, ask_at = now + within_s, now + _ASK_EVERY_S
    while waiting and loop.time() < deadline:
        await asyncio.sleep(_LOOK_EVERY_S)  # its answer is in its heartbeat, of which nobody is told
        if loop.time() >= ask_at:
            # One that was just about to subscribe has not heard us.
            await _ask(client, request)
            ask_at += _ASK_EVERY_S
        records = {str(one["name"]): one for one in await registry.processes()}
        for name in sorted(waiting):
            answer = records.get(name, {}).get("reloaded", {})
            if name not in records:
                waiting.discard(name)
                found.silent.append(name)
            elif answer.get("request") == request:
                waiting.discard(name)
                if answer["error"]:
                    found.failed[name] = answer["error"]
                else:
                    found.good.append(name)
    found.silent.extend(sorted(waiting))
    return found


async def _ask(client: Client, request: str) -> None:
    with translated():
        await client.publish(CHANGED_CHANNEL, _RELOAD + request)
