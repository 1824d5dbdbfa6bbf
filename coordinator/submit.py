"""Submits to one pool what was tracked for it, in order, and says what did not fit."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable

from coordinator.put_off import PutOff
from coordinator.route import Routed
from fleet.alarms import Alarms
from fleet.errors import Fenced
from fleet.outcome import CASCADE_RETRY_S
from fleet.sources.base import Source
from fleet.state.connect import Client
from fleet.state.entry import Entry
from fleet.state.pool import AWAY_GRACE_MS, Pool
from fleet.state.queue import Queue, Tracking

log = logging.getLogger("fleet.coordinator")

NO_SUCH_POOL_RETRY_S = 1
"""For a pool that is configured and not yet known to Redis, or that is just being removed."""
SUBMIT_MOST = 500
"""Entries in one call: a script is not interrupted, and others wait for it."""
FULL_TOLD_EVERY_S = 10.0

Portion = list[tuple[Routed, Tracking]]
"""The part of a batch that goes to one pool."""
Untaken = list[tuple[Routed, Tracking, int]]
"""What a pool did not take, and after how many seconds each message may come again."""


class Submitter:
    """Submits for one queue, to any pool."""

    def __init__(
        self,
        *,
        client: Client,
        queue: Queue,
        source: Source,
        on_room: Callable[[str, int, int], None],
        put_off: PutOff,
        alarms: Alarms,
        counts: Counter[str],
    ) -> None:
        self._client = client
        self._queue = queue
        self._source = source
        self._on_room = on_room
        self._put_off = put_off
        self._alarms = alarms
        self._counts = counts
        self._grace_ms = max(source.visibility_ms, source.crash_wait_ms) + AWAY_GRACE_MS
        self._pools: dict[str, Pool] = {}
        self._told_full: dict[str, tuple[float, int]] = {}
        """By pool, when the log was told that it is full, and how many messages it has refused since."""
        self._given_up: Counter[str] = Counter()

    def pool(self, code: str) -> Pool:
        pool = self._pools.get(code)
        if pool is None:
            pool = self._pools[code] = Pool(self._client, code)
        return pool

    def give_up(self, code: str) -> int:
        """A call was not answered. It may be on its way still, and is fenced off before the next, of this number."""
        self._given_up[code] += 1
        return self._given_up[code]

    async def submit(self, code: str, portion: Portion, batch_id: str) -> Untaken:
        pool, name, entries = self.pool(code), self._queue.name, self._entries(portion, batch_id)
        untaken: Untaken = []
        full_s, call = self._put_off.seconds(code), self._given_up[code]
        for first in range(0, len(entries), SUBMIT_MOST):
            part = entries[first : first + SUBMIT_MOST]
            answer = await pool.submit(name, self._queue.epoch, part, call=call, full_s=full_s, grace_ms=self._grace_ms)
            if answer.tag == "stale":
                raise Fenced(f"queue {name} has another owner")
            waits_s = dict.fromkeys(answer.cascaded, CASCADE_RETRY_S)
            waits_s |= {i: math.ceil(ms / 1000) for i, ms in answer.behind.items()}
            untaken += [(*portion[first + i], waits_s[i]) for i in sorted(waits_s)]
            if answer.tag != "ok":
                return untaken + [(r, t, NO_SUCH_POOL_RETRY_S) for r, t in portion[first:]]
            self._on_room(code, answer.room, len(part))
            self._put_off.seen(code, answer.room + answer.accepted - len(waits_s))
            if answer.accepted < len(part):
                self._put_off.refused(code)
                over = len(entries) - first - answer.accepted
                self._counts["refused"] += over
                self._tell_full(code, over, full_s)
                self._alarms.add("QUEUE_FULL", "WARN", f"pool {code} is full, messages of {name} go back", logged=True)
                # Everything behind the first refusal goes back, else later messages of a group would overtake.
                return untaken + [(r, t, full_s) for r, t in portion[first + answer.accepted :]]
        return untaken

    def _entries(self, portion: Portion, batch_id: str) -> list[Entry]:
        now_ms, name = time.time_ns() // 1_000_000, self._queue.name
        return [
            Entry(
                name,
                r.received.broker_id,
                t.token,
                batch_id,
                r.lane,
                r.group,
                now_ms,
                r.message.id,
                r.message.mediation_target,
                r.message.auth_token,
                r.is_held_by(self._source),
                r.message.high_priority,
                r.policy,
                self._source.shows_in_order,
            )
            for r, t in portion
        ]

    def _tell_full(self, code: str, refused: int, full_s: int) -> None:
        """At once, and then only now and then: a slow pool refuses a part of every batch."""
        now_s = time.monotonic()
        told_s, since_then = self._told_full.get(code, (-FULL_TOLD_EVERY_S, 0))
        if now_s - told_s < FULL_TOLD_EVERY_S:
            self._told_full[code] = told_s, since_then + refused
            return
        self._told_full[code] = now_s, 0
        text = "pool %s is full: %d messages of %s go back for %d s"
        log.warning(text, code, since_then + refused, self._queue.name, full_s)
