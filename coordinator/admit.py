"""Takes a batch in: track in the queue's slot, then submit to the pools, then hand back what did not fit."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from coordinator.route import Malformed, Routed, overtaking, route
from fleet import failpoint
from fleet.alarms import Alarms
from fleet.errors import Fenced, StateUnavailable
from fleet.lease import Lease
from fleet.message import DEFAULT_POOL
from fleet.outcome import CASCADE_RETRY_S
from fleet.sources.base import Held, Received, Source
from fleet.state.connect import Client
from fleet.state.entry import Entry
from fleet.state.pool import AWAY_GRACE_MS, Pool
from fleet.state.queue import Queue, Tracking

log = logging.getLogger("fleet.coordinator")

NO_SUCH_POOL_RETRY_S = 1
"""A pool that the configuration names and Redis does not know yet, or that is just being removed."""
SUBMIT_MOST = 500
"""Entries a call: a script is not interrupted, and others wait for it."""
FULL_TOLD_EVERY_S = 10.0
DEAD_LETTERS_KEPT = 10_000
_POLICY = {None: "", "IMMEDIATE": "return", "NEXT_ON_ERROR": "skip", "BLOCK_ON_ERROR": "hold"}
DEAD_BODY_BYTES = 16 * 1024


class Admission:
    """Admits the batches of one queue."""

    def __init__(
        self,
        *,
        client: Client,
        queue: Queue,
        source: Source,
        lease: Lease,
        pool_for: Callable[[str], str],
        on_room: Callable[[str, int, int], None],
        full_s: Callable[[str], int],
        alarms: Alarms,
        counts: Counter[str],
    ) -> None:
        self._client = client
        self._queue = queue
        self._source = source
        self._lease = lease
        self._pool_for = pool_for
        self._on_room = on_room
        self._full_s = full_s
        self._alarms = alarms
        self._counts = counts
        self._grace_ms = max(source.visibility_ms, source.crash_wait_ms) + AWAY_GRACE_MS
        self._pools: dict[str, Pool] = {}
        self._told_full: dict[str, tuple[float, int]] = {}
        """Pool → when the log was told that it is full, and how many messages it refused since."""

    async def admit(self, batch: Sequence[Received]) -> None:
        """Raises an error that ends this ownership; the next owner, perhaps we again, reconciles."""
        routed, malformed = route(batch, self._pool_for)
        self._counts["received"] += len(batch)
        if malformed:
            await self._bury(malformed)
        if not routed:
            return
        for code in {r.message.pool_code for r in routed if r.pool != r.message.pool_code}:
            self._counts["default_pool"] += 1
            what = f"no pool {code}" if code else "messages that name no pool"
            self._alarms.add("ROUTING", "WARN", f"{what}: they go to {DEFAULT_POOL}")
        tracking = await self._queue.track(
            [(r.received.broker_id, r.message.id, r.pool, r.lane, r.received.handle) for r in routed],
            targets=[r.message.mediation_target for r in routed],
        )
        failpoint.hit("tracked")
        early: set[int] = set()
        known = [t.verdict for t in tracking]
        if any(verdict != "new" for verdict in known):
            await self._recognise(routed, tracking)
            if self._source.holds_groups:
                early = set(overtaking(routed, known))
        fresh = [
            (r, t)
            for i, (r, t) in enumerate(zip(routed, tracking, strict=True))
            if t.verdict == "new" and i not in early
        ]
        batch_id = secrets.token_hex(8)
        by_pool: dict[str, list[tuple[Routed, Tracking]]] = {}
        for r, t in fresh:
            by_pool.setdefault(r.pool, []).append((r, t))
        # At once: its source shows none of them before what is under way is over.
        returned = [(routed[i], tracking[i], 0) for i in sorted(early)]
        for code, share in by_pool.items():
            returned += await self._submit(code, share, batch_id)
        failpoint.hit("submitted")
        if returned:
            await self._hand_back(returned)

    async def _submit(
        self, code: str, share: list[tuple[Routed, Tracking]], batch_id: str
    ) -> list[tuple[Routed, Tracking, int]]:
        """Returns what the pool did not take, each with the seconds after which it may come again."""
        pool = self._pools.get(code)
        if pool is None:
            pool = self._pools[code] = Pool(self._client, code)
        holds_groups, now_ms, name = self._source.holds_groups, time.time_ns() // 1_000_000, self._queue.name
        entries = [
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
                # A group that stands in the body alone is none to the source.
                holds_groups and r.received.group is not None,
                r.message.high_priority,
                _POLICY[r.message.dispatch_mode],
                self._source.shows_in_order,
            )
            for r, t in share
        ]
        returned: list[tuple[Routed, Tracking, int]] = []
        full_s = self._full_s(code)
        for first in range(0, len(entries), SUBMIT_MOST):
            part = entries[first : first + SUBMIT_MOST]
            answer = await pool.submit(name, self._queue.epoch, part, full_s=full_s, grace_ms=self._grace_ms)
            if answer.tag == "stale":
                raise Fenced(f"queue {name} has another owner")
            waits_s = dict.fromkeys(answer.cascaded, CASCADE_RETRY_S)
            waits_s |= {i: math.ceil(ms / 1000) for i, ms in answer.behind.items()}
            returned += [(*share[first + i], waits_s[i]) for i in sorted(waits_s)]
            if answer.tag != "ok":
                return returned + [(r, t, NO_SUCH_POOL_RETRY_S) for r, t in share[first:]]
            self._on_room(code, answer.room, len(part))
            if answer.accepted < len(part):
                over = len(entries) - first - answer.accepted
                self._counts["refused"] += over
                self._tell_full(code, over, full_s)
                self._alarms.add("QUEUE_FULL", "WARN", f"pool {code} is full, messages of {name} go back", logged=True)
                # All behind the first refusal goes back, or a group's later messages would overtake.
                return returned + [(r, t, full_s) for r, t in share[first + answer.accepted :]]
        return returned

    def _tell_full(self, code: str, refused: int, full_s: int) -> None:
        """In the log at once, and from then on now and then: a slow pool refuses a part of every batch."""
        now_s = time.monotonic()
        told_s, since_then = self._told_full.get(code, (-FULL_TOLD_EVERY_S, 0))
        if now_s - told_s < FULL_TOLD_EVERY_S:
            self._told_full[code] = told_s, since_then + refused
            return
        self._told_full[code] = now_s, 0
        text = "pool %s is full: %d messages of %s go back for %d s"
        log.warning(text, code, since_then + refused, self._queue.name, full_s)

    async def _hand_back(self, returned: list[tuple[Routed, Tracking, int]]) -> None:
        looked_into = self._source.is_looked_into
        hidden_ms = {} if looked_into else {r.received.broker_id: seconds * 1000 for r, _, seconds in returned}
        gone = await self._queue.untrack([(r.received.broker_id, t.token) for r, t, _ in returned], hidden_ms=hidden_ms)
        self._check_lease()
        await self._source.nack(
            [
                (Held(r.received.broker_id, gone[r.received.broker_id]), seconds * 1000)
                for r, _, seconds in returned
                if r.received.broker_id in gone
            ]
        )

    async def _recognise(self, routed: list[Routed], tracking: list[Tracking]) -> None:
        """Copies of messages in flight, and messages that were settled as ack before their handle expired."""
        seen = list(zip(routed, tracking, strict=True))
        over = [(r, t) for r, t in seen if t.verdict in ("requeued", "acked")]
        again = [(r.received.broker_id, t.token) for r, t in seen if t.verdict == "redelivered"]
        self._counts["redelivered"] += len(again)
        self._counts["requeued"] += sum(t.verdict == "requeued" for _, t in seen)
        if over:
            self._check_lease()
            done = await self._source.ack([Held(r.received.broker_id, r.received.handle) for r, _ in over])
            # One whose new handle expired as well stays remembered, or it would be delivered when it comes next.
            settled = [
                (r.received.broker_id, t.token)
                for (r, t), ok in zip(over, done, strict=True)
                if ok and t.verdict == "acked"
            ]
            if settled:
                await self._queue.untrack(settled)

    async def _bury(self, malformed: list[Malformed]) -> None:
        """Keep them before they are acked: a crash between the two keeps them twice, never not at all."""
        letters = []
        for m in malformed:
            log.warning("message %s of %s can never be delivered: %s",
                        m.received.broker_id, self._queue.name, m.reason)  # fmt: skip
            letters.append(
                msgspec.json.encode(
                    {
                        "brokerMessageId": m.received.broker_id,
                        "queueId": self._queue.name,
                        "reason": m.reason,
                        "bodyBytes": len(m.received.body),
                        "body": m.received.body[:DEAD_BODY_BYTES].decode("utf-8", "replace"),
                        "t": time.time_ns() // 1_000_000,
                    }
                ).decode()
            )
        self._counts["malformed"] += len(malformed)
        name = self._queue.name
        self._alarms.add(
            "MALFORMED_MESSAGE", "WARN", f"queue {name} holds what is no message, see fleet dead list", logged=True
        )
        await self._queue.bury(letters, keep=DEAD_LETTERS_KEPT)
        self._check_lease()
        await self._source.ack([Held(m.received.broker_id, m.received.handle) for m in malformed])

    def _check_lease(self) -> None:
        if not self._lease.held:
            raise StateUnavailable(f"the lease on queue {self._queue.name} lapsed")
