"""Copies accepted outcomes from this worker's outboxes to their queues' settled lists, then has them trimmed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fleet import failpoint
from fleet.errors import StateError
from fleet.state.connect import Client
from fleet.state.entry import unpack_item
from fleet.state.queue import Queue
from fleet.waiting import Backoff
from workers.exchange import PoolLink

log = logging.getLogger("fleet.worker")

REPORT_EVERY_S = 0.002
"""How often a queue hears of outcomes at most. They are settled already; this is only their way to the source."""


class _Parcel:
    """What one call settled, until all of it has reached its queues."""

    __slots__ = ("call", "left", "link")

    def __init__(self, link: PoolLink, call: int, left: int) -> None:
        self.link = link
        self.call = call
        self.left = left


class Reporter:
    """One call in flight per queue: what piles up meanwhile goes with the next."""

    def __init__(self, *, client: Client, worker: str, on_crash: Callable[[asyncio.Task[None]], None]) -> None:
        self._client = client
        self._worker = worker
        self._on_crash = on_crash
        self._waiting: dict[str, list[tuple[_Parcel, tuple[str, str, str]]]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reported_at: dict[str, float] = {}
        self._recoveries: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        return bool(self._tasks or self._recoveries)

    def report(self, link: PoolLink, call: int, items: list[str]) -> None:
        failpoint.hit("settled")
        parcel = _Parcel(link, call, len(items))
        for item in items:
            queue, outcome = unpack_item(item)
            waiting = self._waiting.get(queue)
            if waiting is None:
                waiting = self._waiting[queue] = []
            waiting.append((parcel, outcome))
        for queue in self._waiting:
            if queue not in self._tasks:
                task = self._tasks[queue] = asyncio.get_running_loop().create_task(self._report(queue))
                task.add_done_callback(self._on_crash)

    def recover(self, link: PoolLink) -> None:
        """Report all that stands in the outbox of a pool: some of it may have been accepted without our knowing."""
        task = asyncio.get_running_loop().create_task(self._recover(link))
        self._recoveries.add(task)
        task.add_done_callback(self._recoveries.discard)
        task.add_done_callback(self._on_crash)

    async def _recover(self, link: PoolLink) -> None:
        backoff = Backoff()
        while True:
            try:
                calls = await link.pool.outbox(self._worker)
                break
            except StateError:
                await backoff.pause()
        for call, items in calls.items():
            self.report(link, call, items)

    async def _report(self, name: str) -> None:
        queue = Queue(self._client, name)
        loop = asyncio.get_running_loop()
        backoff = Backoff()
        try:
            while name in self._waiting:
                pause_left_s = self._reported_at.get(name, 0.0) + REPORT_EVERY_S - loop.time()
                if pause_left_s > 0:
                    await asyncio.sleep(pause_left_s)
                self._reported_at[name] = loop.time()
                batch = self._waiting.pop(name)
                outcomes = [outcome for _, outcome in batch]
                while True:
                    try:
                        await queue.report(outcomes)
                        break
                    except StateError as error:
                        # They are safe in the outbox: should we die, the leader copies them.
                        if backoff.is_new:
                            log.warning("outcomes of %s wait in the outbox: %s", name, error)
                        await backoff.pause()
                failpoint.hit("copied")
                for parcel, _ in batch:
                    parcel.left -= 1
                    if parcel.left == 0:
                        parcel.link.trim(parcel.call)
        finally:
            del self._tasks[name]
