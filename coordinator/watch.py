"""What the leader does for the whole fleet: copy outcomes of dead workers, remove drained pools, look for trouble."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from coordinator.directory import Directory
from coordinator.outboxes import Outboxes
from fleet.alarms import Alarms
from fleet.clock import Clock
from fleet.config.router import MIN_CAPACITY
from fleet.errors import StateError
from fleet.state import observe
from fleet.state.connect import Client
from fleet.state.pool import Pool
from fleet.state.queue import Queue
from fleet.state.registry import NEARLY_FULL, Registry
from fleet.waiting import happens

log = logging.getLogger("fleet.coordinator")

WATCH_EVERY_S = 1.0
"""How soon a drained pool is removed, and a dead worker's outbox copied (the seed takes 10 s)."""
TROUBLE_EVERY_S = 30.0
_END_WITHIN_S = 0.5
_SWEEP_EVERY = 30
"""Rounds between two looks into the outboxes of every pool. In between only a death makes us look."""


class Watch:
    """It does nothing before there is a configuration, and nothing once it is told to stop."""

    def __init__(
        self,
        *,
        client: Client,
        directory: Directory,
        leads: Callable[[], bool],
        alarms: Alarms,
        clock: Clock,
        every_s: float = WATCH_EVERY_S,
    ) -> None:
        self._client = client
        self._registry = Registry(client)
        self._directory = directory
        self._leads = leads
        self._alarms = alarms
        self._clock = clock
        self._every_s = every_s
        self._outboxes = Outboxes(client=client, clock=clock)
        self._looked_ms: float | None = None
        self._still: dict[str, int] = {}
        self._known_alive: set[str] = set()
        self._rounds = 0
        self._stop = asyncio.Event()
        self._at_it = asyncio.Lock()
        self.memory_full = False

    async def run(self) -> None:
        while not self._stop.is_set():
            await self.round()
            await happens(self._stop, within_s=self._every_s)

    async def stop(self) -> None:
        """Begin nothing more, and wait a moment for the round that has begun."""
        self._stop.set()
        try:
            async with asyncio.timeout(_END_WITHIN_S), self._at_it:
                return
        except TimeoutError:
            log.debug("watch: still at it")

    async def round(self) -> None:
        async with self._at_it:
            if self._stop.is_set():
                return
            try:
                self._note_memory(await self._registry.memory_share())
                if self._leads() and self._directory.revision:
                    await self._look_after_the_fleet()
                    self._rounds += 1
                else:
                    self._rounds, self._known_alive = 0, set()
            except StateError as error:
                self._rounds = 0
                log.debug("watch: %s", error)

    async def _look_after_the_fleet(self) -> None:
        alive = await self._registry.alive()
        if self._known_alive - alive or self._rounds % _SWEEP_EVERY == 0:
            await self._outboxes.copy()
        await self._remove_drained()
        await self._look_for_trouble()
        self._known_alive = alive

    def _note_memory(self, share: float) -> None:
        full = share > NEARLY_FULL
        if full != self.memory_full:
            what = "nothing is taken from the queues until it is not" if full else "queues are read again"
            log.warning("Redis is %.0f %% full: %s", share * 100, what)
        self.memory_full = full

    async def _look_for_trouble(self) -> None:
        """Every half minute: is more tracked than the pools can hold, and is there a pool that nobody serves?"""
        now_ms = self._clock.boot_ms()
        if self._looked_ms is not None and now_ms - self._looked_ms < TROUBLE_EVERY_S * 1000:
            return
        self._looked_ms = now_ms
        pools = await observe.pools(self._client)
        tracked = 0
        for name in self._directory.queues():
            tracked += await Queue(self._client, name).tracked_count()
        capacity = capacity_of(pools)
        if tracked > capacity:
            log.warning("%d messages are tracked, and the pools can hold %d", tracked, capacity)
            # Without the numbers: they change, and only an equal warning is counted instead of repeated.
            self._alarms.add("PIPELINE_MAP_LEAK", "WARN", "more messages are tracked than the pools hold", logged=True)
        still = standing_still(pools)
        for code, held in still.items():
            # Twice in a row: a single look may fall between two deliveries.
            if self._still.get(code) == held:
                self._alarms.add("POOL_STALLED", "WARN", f"pool {code} has work and nobody delivers it")
        self._still = still

    async def _remove_drained(self) -> None:
        for code in await self._registry.pools() - self._directory.pools:
            if await Pool(self._client, code).remove(self._directory.revision) == "gone":
                await self._registry.forget_pool(code)
                log.info("pool %s is drained and removed", code)


def capacity_of(pools: Iterable[observe.PoolView]) -> int:
    """How much the pools can hold as they are now. One whose capacity was lowered holds more for a while."""
    return max(sum(max(view.settings.capacity, view.messages) for view in pools), MIN_CAPACITY)


def standing_still(pools: Iterable[observe.PoolView]) -> dict[str, int]:
    """Pools with work that nobody delivers, although nothing is in the way, and how much each holds."""
    return {
        view.code: view.messages
        for view in pools
        if view.ready and not view.leases and not view.paused and view.settings.rate_limit_per_minute is None
    }
