"""What an operator does to a pool and its lanes by hand. One typed wrapper per script."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Literal

from fleet.config.router import CAPACITY_PER_SLOT, MIN_CAPACITY
from fleet.state.connect import Client
from fleet.state.entry import Entry, outbox_item, park, unpack_item
from fleet.state.keys import PoolKeys
from fleet.state.pool import Pool
from fleet.state.queue import Queue
from fleet.state.scripts import script

NO_RATE = 0
"""As a rate limit: no limit."""


@dataclass(frozen=True, slots=True)
class Adjusted:
    """What a pool has now."""

    tag: Literal["ok", "unknown", "gone"]
    """`gone`: it drains because the configuration does not name it any more."""
    concurrency: int
    capacity: int
    rate_limit_per_minute: int | None
    changed: bool


@dataclass(frozen=True, slots=True)
class Skipped:
    tag: Literal["skipped", "leased", "changed"]
    until_ms: int | None = None
    operator: str = ""
    """In whose outbox it stands until it is reported to its queue."""


class PoolByHand:
    """One pool. `now_ms` is for tests; empty means Redis TIME."""

    def __init__(self, client: Client, code: str, *, now_ms: str = "") -> None:
        self.client = client
        self.code = code
        self.keys = PoolKeys(code)
        self.now_ms = now_ms

    async def pause(self, paused: bool) -> bool:
        s = script("pause")
        return bool(await s(self.client, s.keys_of(self.keys), ["1" if paused else ""]))

    async def adjust(
        self, *, concurrency: int | None = None, rate: int | None = None, draining: bool | None = None
    ) -> Adjusted:
        """Change what is given (a rate of NO_RATE takes it away). It holds until a new revision is published."""
        s = script("adjust")
        arguments: list[str | int] = [
            self.now_ms,
            "" if concurrency is None else concurrency,
            "" if rate is None else rate,
            "" if draining is None else str(int(draining)),
            CAPACITY_PER_SLOT,
            MIN_CAPACITY,
        ]
        tag, now, capacity, per_minute, changed = await s(self.client, s.keys_of(self.keys), arguments)
        return Adjusted(
            tag, int(now or 0), int(capacity or 0), int(per_minute) if per_minute else None, bool(int(changed))
        )

    async def release(self, lane: str) -> Literal["released", "leased", "ready", "none"]:
        s = script("release")
        return await s(self.client, s.keys_of(self.keys), [lane])  # type: ignore[no-any-return]

    async def skip(self, head: Entry, letter: str) -> Skipped:
        """Settle the head of a lane as put aside, exactly as a worker would: it stands in an outbox from now on.

        `report` brings it to its queue. Should we die before, the leader does, as for any worker that is not alive.
        """
        operator = f"operator-{secrets.token_hex(8)}"
        s = script("skip")
        keys = [self.keys.outbox(operator) if key == "outbox" else str(getattr(self.keys, key)) for key in s.keys]
        value = head.fields()[-1]
        tag, until = await s(self.client, keys, [self.now_ms, operator, head.lane, head.key, value, letter])
        return Skipped(tag, int(float(until)) if until else None, operator if tag == "skipped" else "")

    async def report(self, head: Entry, letter: str, operator: str) -> None:
        """Copy what was skipped to its queue's settled list, then forget it here. Idempotent."""
        queue, outcome = unpack_item(outbox_item(head, park(letter)))
        await Queue(self.client, queue).report([outcome])
        await Pool(self.client, self.code).trim_outbox(operator, [1])
