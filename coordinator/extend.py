"""What takes long stays invisible: the owner extends each message before half of its visibility is over.

It knows from memory which are due (`alive.py`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from coordinator.alive import OwnedQueue
from fleet.clock import Clock
from fleet.errors import SourceUnavailable
from fleet.sources.base import Receipt, Source
from fleet.state.queue import Tracked

log = logging.getLogger("fleet.coordinator")

DUE_AT, LOOK_EVERY = 3 / 8, 1 / 8
"""Parts of the visibility: when a message is due, and how often we look. It is extended before half is over."""
_PAGE = 500


class Extender:
    """Extends for one queue while its lease is held."""

    def __init__(
        self,
        *,
        queue: OwnedQueue,
        source: Source,
        clock: Clock,
        counts: Counter[str],
        ours: Callable[[], bool],
        rest: Callable[[float], Awaitable[None]],
    ) -> None:
        """`rest`: wait for so many seconds, or until we are stopped."""
        self._queue = queue
        self._source = source
        self._clock = clock
        self._counts = counts
        self._ours = ours
        self._rest = rest

    async def run(self) -> None:
        visibility_ms = self._source.visibility_ms
        while self._ours():
            # Look before the first rest: messages of an earlier owner may soon become visible.
            due = self._queue.alive.due(self._clock.boot_ms() - visibility_ms * DUE_AT)
            for first in range(0, len(due), _PAGE):
                if not self._ours():
                    return
                await self._extend(due[first : first + _PAGE])
            await self._rest(visibility_ms * LOOK_EVERY / 1000)

    async def _extend(self, broker_ids: list[str]) -> None:
        now_ms = self._clock.boot_ms()
        records = await self._queue.tracked(broker_ids)
        self._queue.alive.gone(one for one, record in zip(broker_ids, records, strict=True) if record is None)
        there = [record for record in records if record is not None]
        under_way = [record for record in there if record.state != "a"]
        try:
            await self._ack_again([record for record in there if record.state == "a"])
            if under_way:
                held = [Receipt(record.broker_id, record.handle) for record in under_way]
                await self._source.extend(held, self._source.visibility_ms)
        except SourceUnavailable as error:
            # They are still due, and tried again at the next look.
            log.warning("%s: %d messages may be redelivered while they are under way", error, len(under_way))
            return
        self._queue.alive.seen([record.broker_id for record in under_way], now_ms)

    async def _ack_again(self, settled: list[Tracked]) -> None:
        """Their handles had expired. If the source says by now that a message is gone, it can go here too."""
        if not settled:
            return
        gone = await self._source.ack([Receipt(t.broker_id, t.handle) for t in settled])
        self._queue.alive.seen([t.broker_id for t in settled], self._clock.boot_ms())
        over = [(t.broker_id, t.token) for t, ok in zip(settled, gone, strict=True) if ok]
        if over:
            self._counts["acked"] += len(await self._queue.untrack(over))
