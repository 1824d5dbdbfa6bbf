"""Putting the first message of a group aside: as crash-safe as a worker's settling, and never while a worker delivers
it."""

from __future__ import annotations

import asyncio
import time

from fleet.errors import FleetError
from fleet.letter import skipped
from fleet.state import groups
from fleet.state.by_hand import PoolByHand
from fleet.state.connect import Client
from fleet.words import moment

_LOOK_S = 0.05  # no signal says that a lease was given back


async def skip_head(client: Client, code: str, group: str, *, give_up: float) -> str:
    """Returns the id of the message that was put aside. Waits for a worker to give the group back, until `give_up`."""
    view = await groups.group(client, code, group)
    if view is None:
        raise FleetError(f"pool {code} holds no message of group {group}")
    # The one that is first now: if it is delivered while we wait, the next one has done nothing to be skipped for.
    head, letter, pool = view.head, skipped(view.head, pool=code), PoolByHand(client, code)
    while True:
        done = await pool.skip(head, letter)
        if done.tag == "skipped":
            await pool.report(head, letter, done.operator)
            return head.message_id
        if done.tag == "changed":
            raise FleetError(f"message {head.message_id} is not the first of group {group} any more: nothing is done")
        if time.monotonic() >= give_up:
            until = f", until {moment(done.until_ms)} if it does not answer" if done.until_ms else ""
            raise FleetError(f"a worker delivers message {head.message_id} now{until}: wait, or use --force")
        await asyncio.sleep(_LOOK_S)
