"""Outcomes that no worker copies to their queues: those of dead workers, and those that a failover brought back."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from fleet.clock import Clock
from fleet.errors import StateError
from fleet.state.connect import Client
from fleet.state.entry import unpack_item
from fleet.state.pool import Pool
from fleet.state.queue import Queue
from fleet.state.registry import Registry

log = logging.getLogger("fleet.coordinator")

FORGOTTEN_MS = 30_000.0
"""A living worker trims what it has copied within milliseconds. If something stands for this long, Redis failed over
to a replica that had not heard of the trim, nor perhaps of the copy. The worker takes it for trimmed."""


class Outboxes:
    """The leader's look at all outboxes."""

    def __init__(self, *, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._registry = Registry(client)
        self._standing: dict[tuple[str, str], frozenset[int]] = {}
        """By pool and living worker, the calls that the outbox held when we last noted them."""
        self._noted_ms = -FORGOTTEN_MS

    async def copy(self) -> None:
        """All outcomes of the dead, and those of the living that stood there half a minute ago."""
        now_ms = self._clock.boot_ms()
        ripe = now_ms - self._noted_ms >= FORGOTTEN_MS
        standing: dict[tuple[str, str], frozenset[int]] = {}
        trouble: StateError | None = None
        for code in await self._registry.pools():
            try:
                await self._look_into(Pool(self._client, code), standing, ripe=ripe)
            except StateError as error:
                trouble = error  # of a node that is away; pools on other nodes go on
        if ripe:
            self._standing, self._noted_ms = standing, now_ms
        if trouble is not None:
            raise trouble

    async def _look_into(self, pool: Pool, standing: dict[tuple[str, str], frozenset[int]], *, ripe: bool) -> None:
        workers = await pool.outboxes()
        if not workers:
            return
        # Asked after the outboxes: a worker says that it is alive before it settles anything.
        alive = await self._registry.alive()
        for worker in workers:
            calls = await pool.outbox(worker)
            if worker in alive:
                stood = self._standing.get((pool.code, worker), frozenset())
                standing[pool.code, worker] = frozenset(calls)
                calls = still_standing(calls, stood) if ripe else {}
            if calls:
                await self._report(pool, worker, calls)

    async def _report(self, pool: Pool, worker: str, calls: Mapping[int, list[str]]) -> None:
        items = [item for call in calls.values() for item in call]
        for queue, outcomes in by_queue(items).items():
            await Queue(self._client, queue).report(outcomes)
        await pool.trim_outbox(worker, list(calls))
        log.info("%d outcomes that %s left behind copied from pool %s", len(items), worker, pool.code)


def still_standing(calls: Mapping[int, list[str]], stood: frozenset[int]) -> dict[int, list[str]]:
    """A call that a living worker made since we last looked may be on its way to its queues. An older one is not."""
    return {call: items for call, items in calls.items() if call in stood}


def by_queue(items: Iterable[str]) -> dict[str, list[tuple[str, str, str]]]:
    """(broker id, token, verdict) of each item, in their order."""
    outcomes: dict[str, list[tuple[str, str, str]]] = {}
    for item in items:
        queue, outcome = unpack_item(item)
        outcomes.setdefault(queue, []).append(outcome)
    return outcomes
