"""Finds phantoms: messages that are tracked and stand nowhere. A phantom would swallow its own redeliveries.

A patrol rather than an index: it looks at one page a second, however much is tracked, and goes round once a minute at
most. So it also finds what nobody here remembers, such as an entry that a failover of Redis brought back.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container

from coordinator.takeover import lost_of, return_lost
from fleet.alarms import Alarms
from fleet.clock import Clock
from fleet.errors import StateUnavailable
from fleet.sources.base import Source
from fleet.state.connect import Client
from fleet.state.queue import Queue, Tracked
from fleet.state.registry import Registry
from fleet.words import number

log = logging.getLogger("fleet.coordinator")

EVERY_S = 60.0
"""A round takes at least this long. An entry younger than this is left alone: it may be on its way to its pool."""
PAGE_EVERY_S = 1.0
PENDING_DELETE_MS = 14 * 24 * 3600 * 1000
"""How long we remember a message that was acked under an expired handle. No source keeps a message for longer."""


class Patrol:
    def __init__(
        self,
        *,
        client: Client,
        queue: Queue,
        source: Source,
        clock: Clock,
        alarms: Alarms,
        ours: Callable[[], bool],
        rest: Callable[[float], Awaitable[None]],
        late: Container[str],
    ) -> None:
        """`rest`: wait for so many seconds, or until we are stopped. `late`: pools whose messages wait here."""
        self._client = client
        self._registry = Registry(client)
        self._queue = queue
        self._source = source
        self._clock = clock
        self._alarms = alarms
        self._ours = ours
        self._rest = rest
        self._late = late

    async def run(self) -> None:
        every_s = EVERY_S
        while self._ours():
            await self._rest(every_s)
            began_ms = self._clock.boot_ms()
            async for page in self._queue.all_tracked():
                if not self._ours():
                    return
                await self._look_at(page)
                await self._rest(min(PAGE_EVERY_S, EVERY_S))
            every_s = max(0.0, EVERY_S - (self._clock.boot_ms() - began_ms) / 1000)

    async def _look_at(self, page: list[Tracked]) -> None:
        before_ms = await self._registry.clock_ms() - EVERY_S * 1000
        found = 0
        for code, share in older_than(before_ms, page).items():
            if code in self._late:
                continue  # what waits here would be given back, and newer messages would overtake it
            lost = await self._lost_of(code, share)
            if code not in self._late:
                found += await return_lost(self._client, self._queue, self._source, lost)
        if forgotten := past_redelivery(before_ms, page):
            await self._queue.untrack(forgotten)
        if found:
            text = f"{number(found, 'message')} of {self._queue.name} tracked and in no pool"
            self._alarms.add("PIPELINE_PHANTOMS", "WARN", text)

    async def _lost_of(self, code: str, share: list[Tracked]) -> list[Tracked]:
        try:
            return await lost_of(self._client, self._queue, share)
        except StateUnavailable as error:
            log.warning("pool %s does not answer: %s", code, error)
            return []


def older_than(before_ms: float, page: list[Tracked]) -> dict[str, list[Tracked]]:
    """Those that were tracked before, by pool."""
    by_pool: dict[str, list[Tracked]] = {}
    for tracked in page:
        if tracked.tracked_ms < before_ms:
            by_pool.setdefault(tracked.pool, []).append(tracked)
    return by_pool


def past_redelivery(before_ms: float, page: list[Tracked]) -> list[tuple[str, str]]:
    """(broker id, token) of what was acked so long ago that its source cannot show it again."""
    return [(t.broker_id, t.token) for t in page if t.state == "a" and t.tracked_ms < before_ms - PENDING_DELETE_MS]
