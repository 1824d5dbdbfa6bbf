"""Applies settled outcomes at the source, in the order that makes a crash between any two steps harmless.

ack: at the source, then untrack. nack: untrack, then at the source, which may show the message again at once.
The entry leaves the settled list last.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from fleet import failpoint
from fleet.errors import SourceUnavailable
from fleet.lease import Lease
from fleet.sources.base import Receipt, Source
from fleet.state.queue import Queue, Settled
from fleet.waiting import Backoff, happens

log = logging.getLogger("fleet.coordinator")

MOST = 500
_SWEEP_S = 5.0
"""What a lost signal costs."""
_RETRY_S = (0.1, 5.0)


class Acknowledger:
    """Acknowledges for one queue while its lease is held."""

    def __init__(self, *, queue: Queue, source: Source, lease: Lease, counts: Counter[str]) -> None:
        self._queue = queue
        self._source = source
        self._lease = lease
        self._counts = counts
        self._stopping = False
        self._insists = True
        self._shown = 0
        """How many messages a nack has shown again: the source still knew them."""
        self.wake = asyncio.Event()

    def stop(self) -> None:
        self._stopping = True
        self.wake.set()

    def _ours(self) -> bool:
        return self._lease.held and not self._stopping

    async def run(self) -> None:
        applied = 0
        while self._ours():
            self.wake.clear()
            settled = await self._queue.settled(applied=applied, want=MOST)
            applied = 0
            if settled:
                failpoint.hit("settled-read")
                applied = await self._apply(settled)
                continue
            await happens(self.wake, within_s=_SWEEP_S)

    async def catch_up(self) -> int:
        """Apply all that is settled by now. Returns how many messages were shown again.

        This comes before anything else is done for the queue, so it raises where `run` would try again.
        """
        shown_before, self._insists = self._shown, False
        applied = 0
        try:
            while settled := await self._queue.settled(applied=applied, want=MOST):
                applied = await self._apply(settled)
                if not applied:
                    break
        finally:
            self._insists = True
        return self._shown - shown_before

    async def _apply(self, settled: list[Settled]) -> int:
        """Returns how many are done; 0 once the lease is gone."""
        acks = [s for s in settled if s.acked and s.handle]
        nacks = [s for s in settled if not s.acked and s.handle]
        over = [(s.broker_id, s.token) for s in nacks]
        if acks:
            accepted = await self._insist(lambda: self._source.ack([Receipt(s.broker_id, s.handle) for s in acks]))
            if accepted is None:
                return 0
            failpoint.hit("acked-at-source")
            # A message whose handle had expired stays tracked as acked. Its redelivery is acked at once.
            over += [(s.broker_id, s.token) for s, ok in zip(acks, accepted, strict=True) if ok]
            self._counts["acked"] += sum(accepted)
        gone = await self._queue.untrack(over, hidden_ms=self._hidden_ms(nacks)) if over else {}
        if nacks:
            failpoint.hit("untracked")
            shown = [(Receipt(s.broker_id, gone[s.broker_id]), s.delay_ms) for s in nacks if s.broker_id in gone]
            known = await self._insist(lambda: self._source.nack(shown))
            if known is None:
                return 0
            self._shown += sum(known)
            self._counts["nacked"] += len(shown)
            failpoint.hit("nacked-at-source")
        return len(settled)

    def _hidden_ms(self, nacks: list[Settled]) -> dict[str, int]:
        """For a source that cannot be inspected: people ask us how long it hides a message."""
        return {} if self._source.is_looked_into else {s.broker_id: s.delay_ms for s in nacks}

    async def _insist(self, call: Callable[[], Awaitable[list[bool]]]) -> list[bool] | None:
        """Call the source until it answers; None once the lease is gone."""
        backoff = Backoff(*_RETRY_S)
        while self._ours():
            try:
                return await call()
            except SourceUnavailable as error:
                if not self._insists:
                    raise
                log.warning("%s: outcomes wait", error)
                await backoff.pause()
        return None
