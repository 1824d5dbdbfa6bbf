"""Outcomes that nobody else brings to their queues: of workers that died, and what a failover brought back."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from fleet.clock import Clock
from fleet.errors import StateError
from fleet.state.connect import Client
from fleet.state.pool import Pool
from fleet.state.queue import Queue
from fleet.state.registry import Registry
from fleet.state.scripts import SEP

log = logging.getLogger("fleet.coordinator")

FORGOTTEN_MS = 30_000.0
"""A living worker trims what it copied within milliseconds. What stands for this long it takes for trimmed: Redis
failed over to a replica that had not heard of the trim, nor perhaps of the copy."""


class Outboxes:
    """The leader's look at all outboxes."""

    def __init__(self, *, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._registry = Registry(client)
        self._standing: dict[tuple[str, str], frozenset[int]] = {}
        """Of each pool and living worker, the calls that its outbox held when it was noted."""
        self._noted_ms = -FORGOTTEN_MS

    async def copy(self) -> None:
        """What of the dead there is, and of the living what stood there half a minute ago."""
        now_ms = self._clock.boot_ms()
        ripe = now_ms - self._noted_ms >= FORGOTTEN_MS
        standing: dict[tuple[str, str], frozenset[int]] = {}
        trouble: StateError | None = None
        for code in await self._registry.pools():
            try:
                await self._look_into(Pool(self._client, code), standing, ripe=ripe)
            except StateError as error:
                trouble = error  # of a node that is away; the pools of others go on
        if ripe:
            self._standing, self._noted_ms = standing, now_ms
        if trouble is not None:
            raise trouble

    async def _look_into(self, pool: Pool, standing: dict[tuple[str, str], frozenset[int]], *, ripe: bool) -> None:
        workers = await pool.outboxes()
        if not workers:
            return
        # Asked after: a worker says that it lives before it settles anything.
        alive = await self._registry.alive()
        for worker in workers:
            calls = await pool.outbox(worker)
            if worker in alive:
                known = self._standing.get((pool.code, worker), frozenset())
                standing[pool.code, worker] = frozenset(calls)
                calls = {call: items for call, items in calls.items() if ripe and call in known}
            if calls:
                await self._bring(pool, worker, calls)

    async def _bring(self, pool: Pool, worker: str, calls: Mapping[int, list[str]]) -> None:
        items = [item for call in calls.values() for item in call]
        by_queue: dict[str, list[tuple[str, str, str]]] = {}
        for item in items:
            queue, broker_id, token, verdict = item.rsplit(SEP, 3)
            by_queue.setdefault(queue, []).append((broker_id, token, verdict))
        for queue, outcomes in by_queue.items():
            await Queue(self._client, queue).report(outcomes)
        await pool.trim_outbox(worker, list(calls))
        log.info("%d outcomes that %s left behind copied from pool %s", len(items), worker, pool.code)
