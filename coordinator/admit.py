"""Admits a batch: track it in the queue's slot, submit it to the pools, return what did not fit."""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Sequence

from coordinator.bring import Bringer
from coordinator.return_ import return_untaken
from coordinator.route import Malformed, Routed, overtaking, route
from coordinator.submit import Portion, Untaken
from fleet import failpoint
from fleet.alarms import Alarms
from fleet.errors import LeaseLapsed
from fleet.lease import Lease
from fleet.letter import malformed as letter_of
from fleet.message import DEFAULT_POOL
from fleet.sources.base import Receipt, Received, Source
from fleet.state.letters import KEPT
from fleet.state.queue import Queue, Tracking
from fleet.state.scripts import SEP

log = logging.getLogger("fleet.coordinator")


class Admission:
    """Admits the batches of one queue."""

    def __init__(
        self,
        *,
        queue: Queue,
        source: Source,
        lease: Lease,
        pool_for: Callable[[str], str],
        bringer: Bringer,
        alarms: Alarms,
        counts: Counter[str],
    ) -> None:
        self._queue = queue
        self._source = source
        self._lease = lease
        self._pool_for = pool_for
        self._bringer = bringer
        self._alarms = alarms
        self._counts = counts

    async def admit(self, batch: Sequence[Received]) -> None:
        """An error ends our ownership. The next owner, perhaps we again, reconciles."""
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
            orders=[r.order(self._source) for r in routed],
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
        by_pool: dict[str, Portion] = {}
        for r, t in fresh:
            by_pool.setdefault(r.pool, []).append((r, t))
        # After 0 s: the source shows none of them before the older ones are done anyway.
        untaken: Untaken = [(routed[i], tracking[i], 0) for i in sorted(early)]
        untaken += await self._bringer.bring(by_pool, batch_id)
        failpoint.hit("submitted")
        if untaken:
            await return_untaken(self._queue, self._source, self._lease, untaken)

    async def _recognise(self, routed: list[Routed], tracking: list[Tracking]) -> None:
        """Ack copies of messages in flight, and messages that were settled as ack after their handle had expired."""
        seen = list(zip(routed, tracking, strict=True))
        over = [(r, t) for r, t in seen if t.verdict in ("copy", "acked")]
        self._counts["redelivered"] += sum(t.verdict == "redelivered" for _, t in seen)
        self._counts["requeued"] += sum(t.verdict == "copy" for _, t in seen)  # as the totals in Redis call it
        if over:
            self._check_lease()
            done = await self._source.ack([Receipt(r.received.broker_id, r.received.handle) for r, _ in over])
            # Newer messages of a lane may be waiting for the copy that we have just acked.
            await self._bringer.expect_no_more(copies_by_pool(self._queue.name, seen, self._source))
            # If its new handle has expired too, it stays tracked: otherwise it would be delivered when it comes again.
            settled = [
                (r.received.broker_id, t.token)
                for (r, t), ok in zip(over, done, strict=True)
                if ok and t.verdict == "acked"
            ]
            if settled:
                await self._queue.untrack(settled)

    async def _bury(self, malformed: list[Malformed]) -> None:
        """Keep them, then ack them. A crash in between keeps them twice; the other way round it would lose them."""
        letters = []
        for m in malformed:
            log.warning("message %s of %s can never be delivered: %s",
                        m.received.broker_id, self._queue.name, m.reason)  # fmt: skip
            letters.append(
                letter_of(broker_id=m.received.broker_id, queue=self._queue.name, body=m.received.body, reason=m.reason)
            )
        self._counts["malformed"] += len(malformed)
        name = self._queue.name
        self._alarms.add(
            "MALFORMED_MESSAGE", "WARN", f"queue {name} holds what is not a message, see fleet dead list", logged=True
        )
        await self._queue.bury(letters, keep=KEPT)
        self._check_lease()
        await self._source.ack([Receipt(m.received.broker_id, m.received.handle) for m in malformed])

    def _check_lease(self) -> None:
        if not self._lease.held:
            raise LeaseLapsed(self._queue.name)


def copies_by_pool(queue: str, seen: Portion, source: Source) -> dict[str, list[tuple[str, str, str, str]]]:
    """For each pool the copies in a batch as (tier, lane, key, instead), see `Pool.expect_no_more`.

    `instead`: the key of the original, if that came in the same batch and is new; else ''.
    """
    by_pool: dict[str, list[tuple[str, str, str, str]]] = {}
    fresh: dict[tuple[str, str, str, str, str], str] = {}
    for r, t in seen:
        order = r.order(source)
        if not order or t.verdict not in ("new", "copy"):
            continue
        key = f"{queue}{SEP}{r.received.broker_id}"
        of = (r.message.id, r.message.mediation_target, r.pool, order[0], r.lane)
        if t.verdict == "new":
            fresh[of] = key
        else:
            by_pool.setdefault(r.pool, []).append((order[0], r.lane, key, fresh.get(of, "")))
    return by_pool
