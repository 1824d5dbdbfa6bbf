"""What the leader does for all: outcomes of dead workers reach their queues, removed pools go once they are empty."""

from __future__ import annotations

import asyncio
import logging

from coordinator.directory import Directory
from coordinator.lead import Lead
from fleet.alarms import Alarms
from fleet.config import MIN_CAPACITY
from fleet.errors import StateError
from fleet.state import observe
from fleet.state.connect import Client
from fleet.state.pool import Pool
from fleet.state.queue import Queue
from fleet.state.registry import Registry
from fleet.state.scripts import SEP

log = logging.getLogger("fleet.coordinator")

MEMORY_FULL = 0.9
"""Of Redis's memory. From here on only what frees it goes on: settling, not taking in."""
TROUBLE_EVERY_S = 30.0
_SWEEP_EVERY = 30
"""Rounds between two looks at every pool; in between only a death makes us look."""


class Watch:
    def __init__(self, *, client: Client, directory: Directory, lead: Lead, alarms: Alarms, every_s: float) -> None:
        self._client = client
        self._registry = Registry(client)
        self._directory = directory
        self._lead = lead
        self._alarms = alarms
        self._every_s = every_s
        self._looked_at = 0.0
        self._still: dict[str, int] = {}
        self._known_alive: set[str] = set()
        self.memory_full = False

    async def run(self) -> None:
        rounds = 0
        while True:
            try:
                self._note_memory(await self._registry.memory_share())
                if self._lead.leadership.held:
                    alive = await self._registry.alive()
                    if self._known_alive - alive or rounds % _SWEEP_EVERY == 0:
                        await self._copy_outboxes_of_the_dead()
                    await self._remove_drained()
                    await self._look_for_trouble()
                    self._known_alive = alive
                    rounds += 1
                else:
                    rounds, self._known_alive = 0, set()
            except StateError as error:
                rounds = 0
                log.debug("watch: %s", error)
            await asyncio.sleep(self._every_s)

    def _note_memory(self, share: float) -> None:
        full = share > MEMORY_FULL
        if full != self.memory_full:
            what = "nothing is taken from the queues until it is not" if full else "queues are read again"
            log.warning("Redis is %.0f %% full: %s", share * 100, what)
        self.memory_full = full

    async def _copy_outboxes_of_the_dead(self) -> None:
        for code in await self._registry.pools():
            pool = Pool(self._client, code)
            workers = await pool.outboxes()
            if not workers:
                continue
            # Asked after: a worker says that it lives before it settles anything.
            for worker in workers - await self._registry.alive():
                calls = await pool.outbox(worker)
                items = [item for call in calls.values() for item in call]
                by_queue: dict[str, list[tuple[str, str, str]]] = {}
                for item in items:
                    queue, broker_id, token, verdict = item.rsplit(SEP, 3)
                    by_queue.setdefault(queue, []).append((broker_id, token, verdict))
                for queue, outcomes in by_queue.items():
                    await Queue(self._client, queue).report(outcomes)
                await pool.trim_outbox(worker, list(calls))
                log.info("%d outcomes of %s, which is gone, copied from pool %s", len(items), worker, code)

    async def _look_for_trouble(self) -> None:
        """Every half minute: more tracked than the pools can hold, and pools that nobody serves."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at < TROUBLE_EVERY_S:
            return
        self._looked_at = now
        tracked = 0
        for name in self._directory.queues():
            tracked += await Queue(self._client, name).tracked_count()
        capacity = max(sum(pool.capacity for pool in self._directory.config.pools), MIN_CAPACITY)
        if tracked > capacity:
            text = f"{tracked} messages are tracked, more than the pools can hold ({capacity})"
            self._alarms.add("PIPELINE_MAP_LEAK", "WARN", text)
        still: dict[str, int] = {}
        for view in await observe.pools(self._client):
            # Twice in a row: one may be looked at between two deliveries.
            waits_for_permits = view.settings.rate_limit_per_minute is not None
            if view.ready and not view.leases and not view.paused and not waits_for_permits:
                still[view.code] = view.held
                if self._still.get(view.code) == view.held:
                    text = f"pool {view.code} has work and nobody delivers it"
                    self._alarms.add("POOL_STALLED", "WARN", text)
        self._still = still

    async def _remove_drained(self) -> None:
        if not self._directory.revision:
            return
        for code in await self._registry.pools() - self._directory.pools:
            if await Pool(self._client, code).remove(self._directory.revision) == "gone":
                await self._registry.forget_pool(code)
                log.info("pool %s is drained and removed", code)
