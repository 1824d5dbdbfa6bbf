"""One consumer per owned queue: poll, admit, acknowledge, and keep invisible what takes long."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque

from coordinator.acknowledge import Acknowledger
from coordinator.admit import Admission
from coordinator.directory import Directory
from coordinator.room import Rooms
from coordinator.takeover import take_over
from fleet import failpoint
from fleet.clock import Clock
from fleet.config import QueueConfig
from fleet.errors import SourceUnavailable
from fleet.lease import Lease
from fleet.sources.base import Held, Received, Source
from fleet.state.connect import Client
from fleet.state.queue import Queue
from fleet.state.registry import Registry

log = logging.getLogger("fleet.coordinator")

POLL_MOST = 500
POLL_WAIT_MS = 1000
"""Short, so that a lost lease or a stop is seen soon; a source that can waits for its first message."""
_RETRY_FROM_S, _RETRY_TO_S = 0.2, 5.0


class Consumer:
    """Works one queue for as long as its lease is held, and ends with the first error that says otherwise."""

    def __init__(
        self,
        *,
        config: QueueConfig,
        client: Client,
        registry: Registry,
        directory: Directory,
        source: Source,
        lease: Lease,
        clock: Clock,
        rooms: Rooms,
        counts: Counter[str],
    ) -> None:
        self.config = config
        self.lease = lease
        self.last_poll = 0.0
        self.counts = counts
        self._client = client
        self._registry = registry
        self._source = source
        self._clock = clock
        self._rooms = rooms
        self._fed: set[str] = set()
        self._queue = Queue(client, config.name, epoch=lease.epoch)
        self._held: deque[tuple[float, str, str]] = deque()
        self._stop = asyncio.Event()
        self._waiting: asyncio.Task[list[Received]] | None = None
        self._admission = Admission(
            client=client,
            queue=self._queue,
            source=source,
            lease=lease,
            pool_for=directory.pool_for,
            on_room=self._on_room,
            on_held=self._on_held,
            counts=self.counts,
        )
        self.acknowledger = Acknowledger(queue=self._queue, source=source, lease=lease, counts=self.counts)

    async def run(self) -> None:
        """Until stopped, or until an error says that the queue is not ours any more."""
        await take_over(
            client=self._client,
            registry=self._registry,
            queue=self._queue,
            source=self._source,
            on_held=self._on_taken_over,
        )
        steps = [asyncio.create_task(step) for step in (self._acknowledge(), self._poll(), self._extend())]
        try:
            await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.stop()
            await asyncio.wait(steps)
        for step in steps:
            step.result()

    def stop(self) -> None:
        """Poll no more; what has begun is finished. Nothing is cancelled in the middle of a call to Redis."""
        self._stop.set()
        self.acknowledger.stop()
        if self._waiting is not None:
            self._waiting.cancel()

    def _ours(self) -> bool:
        return self.lease.held and not self._stop.is_set()

    async def _acknowledge(self) -> None:
        await self.acknowledger.run()

    async def _poll(self) -> None:
        pause_s = _RETRY_FROM_S
        while self._ours():
            room = await self._rooms.wait(self._fed, POLL_MOST)
            if not room or not self._ours():
                continue
            self._waiting = asyncio.create_task(self._source.poll(min(room, POLL_MOST), POLL_WAIT_MS))
            try:
                batch = await self._waiting
                pause_s = _RETRY_FROM_S
            except asyncio.CancelledError:
                if self._stop.is_set():
                    return
                raise
            except SourceUnavailable as error:
                log.warning("%s", error)
                self.counts["poll_errors"] += 1
                await self._rest(pause_s)
                pause_s = min(pause_s * 2, _RETRY_TO_S)
                continue
            self.last_poll = time.time()
            if not batch:
                continue
            failpoint.hit("polled")
            if not self.lease.held:
                await self._give_back(batch)
                return
            await self._admission.admit(batch)

    async def _rest(self, seconds: float) -> None:
        """Wait, unless we are stopped."""
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return

    async def _give_back(self, batch: list[Received]) -> None:
        """We were stopped while polling, and the queue may be somebody else's: show it all again."""
        await self._source.nack([(Held(r.broker_id, r.handle), 0) for r in batch])

    async def _extend(self) -> None:
        """Keep invisible what is still under way at half of its time, so that it is not redelivered meanwhile."""
        half_ms = self._source.visibility_ms / 2
        while self._ours():
            wait_ms = min(self._held[0][0] - self._clock.boot_ms() if self._held else half_ms, 1000.0)
            if wait_ms > 0:
                await self._rest(wait_ms / 1000)
                continue
            due: list[tuple[str, str]] = []
            now = self._clock.boot_ms()
            while self._held and self._held[0][0] <= now and len(due) < POLL_MOST:
                _, broker_id, token = self._held.popleft()
                due.append((broker_id, token))
            records = await self._queue.tracked([broker_id for broker_id, _ in due])
            still = [(d, r) for d, r in zip(due, records, strict=True) if r is not None and r.token == d[1]]
            if not still or not self._ours():
                continue
            try:
                await self._source.extend(
                    [Held(r.broker_id, r.handle) for _, r in still], self._source.visibility_ms
                )
            except SourceUnavailable as error:
                log.warning("%s: %d messages may be redelivered while they are under way", error, len(still))
            self._on_held([d for d, _ in still])

    def _on_held(self, messages: list[tuple[str, str]]) -> None:
        due = self._clock.boot_ms() + self._source.visibility_ms / 2
        self._held.extend((due, broker_id, token) for broker_id, token in messages)

    def _on_taken_over(self, messages: list[tuple[str, str]]) -> None:
        # How long they are invisible still is known to the source alone: extend them first of all.
        self._held.extendleft((0.0, broker_id, token) for broker_id, token in messages)

    def _on_room(self, code: str, room: int) -> None:
        self._fed.add(code)
        self._rooms.note(code, room)
