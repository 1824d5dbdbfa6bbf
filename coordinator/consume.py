"""One consumer per owned queue: poll, admit, acknowledge, and keep invisible what takes long."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from coordinator.acknowledge import Acknowledger
from coordinator.admit import Admission
from coordinator.directory import Directory
from coordinator.extend import Extender, OwnedQueue
from coordinator.hand_back import hand_back
from coordinator.phantoms import Patrol
from coordinator.rooms import Rooms
from coordinator.submit import Submitter
from coordinator.takeover import take_over
from fleet import failpoint
from fleet.alarms import Alarms
from fleet.clock import Clock
from fleet.config import QueueConfig
from fleet.errors import Disordered, SourceUnavailable
from fleet.lease import Lease
from fleet.message import DEFAULT_POOL
from fleet.sources.base import Asking, Held, Received, Source
from fleet.state.connect import Client
from fleet.state.pool import SHARE
from fleet.state.queue import Tracked
from fleet.state.registry import Registry

log = logging.getLogger("fleet.coordinator")

POLL_MOST = 500
FIRST_POLL_MOST = SHARE
"""Where a queue's messages go shows once some have gone there; until then no more than the smallest pool takes."""
POLL_WAIT_MS = 1000
"""Short, so that a lost lease or a stop is seen soon; a source that can waits for its first message."""
_RETRY_FROM_S, _RETRY_TO_S = 0.2, 5.0
STUCK_MS = 60_000.0
REMEMBERED = 5000
"""Messages whose pools are remembered, to tell the next batch's."""
_DRAIN_LOOK_S = 0.5


def leaves_disorder(consumer: Consumer | None, source: Source, lease: Lease) -> bool:
    """Whether the next owner must look for what was given and is not known of.

    One that never came to look leaves the queue as it was found.
    """
    if consumer is not None:
        return consumer.in_disorder
    return bool(source.crash_wait_ms) and not lease.was_given_back


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
        alarms: Alarms,
        counts: Counter[str],
        draining: bool = False,
    ) -> None:
        self.config = config
        self.lease = lease
        self._polled_ms: float | None = None
        self.counts = counts
        self._client = client
        self._registry = registry
        self._source = source
        self._clock = clock
        self._rooms = rooms
        self._alarms = alarms
        self._directory = directory
        self._fed: Counter[str] = Counter()
        """How many messages of late went to each pool; what is older counts less and less."""
        self._queue = OwnedQueue(client, config.name, epoch=lease.epoch, clock=clock)
        self._draining = draining
        self.drained = False
        """Nothing of it is under way any more, and nothing will be."""
        self.in_disorder = leaves_disorder(None, source, lease)
        """Whether more may be out at the source than is tracked, and who comes next has to wait for that."""
        self._alive_ms = clock.boot_ms()
        self._stop = asyncio.Event()
        self._waiting: asyncio.Task[list[Received]] | None = None
        self._submitter = Submitter(
            client=client,
            queue=self._queue,
            source=source,
            lease=lease,
            on_room=self._on_room,
            put_off=rooms.put_off,
            alarms=alarms,
            counts=self.counts,
            ours=self._ours,
            rest=self._rest,
        )
        self._admission = Admission(
            queue=self._queue,
            source=source,
            lease=lease,
            pool_for=directory.pool_for,
            submitter=self._submitter,
            alarms=alarms,
            counts=self.counts,
        )
        self.acknowledger = Acknowledger(queue=self._queue, source=source, lease=lease, counts=self.counts)
        self._extender = Extender(
            queue=self._queue, source=source, clock=clock, counts=self.counts, ours=self._ours, rest=self._rest
        )
        self._patrol = Patrol(
            client=client,
            queue=self._queue,
            source=source,
            clock=clock,
            alarms=alarms,
            ours=self._ours,
            rest=self._rest,
            is_late=self._submitter.is_late,
        )

    async def run(self) -> None:
        """Until stopped, or until an error says that the queue is not ours any more."""
        dropped = await self._take_over()
        if self.in_disorder and not self._draining:
            # Should we end before this is known, who comes next has to find it out.
            self.in_disorder = await self._is_more_out_than_known(dropped)
        self._alive_ms = self._clock.boot_ms()
        work = self._drain() if self._draining else self._poll_when_quiet()
        duties = (self.acknowledger.run(), work, self._extender.run(), self._patrol.run(), self._submitter.run())
        steps = [asyncio.create_task(duty) for duty in duties]
        try:
            await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.stop()
            try:
                await asyncio.wait(steps)
            except asyncio.CancelledError:
                # Abandoned: one of them hangs below us. What comes back later finds that it is not wanted any more.
                for step in steps:
                    step.cancel()
                raise
        # All of them are looked at: an error that nobody asks for is printed when its task is forgotten.
        errors = [error for step in steps if not step.cancelled() and (error := step.exception()) is not None]
        if any(isinstance(error, Disordered) for error in errors):
            # It is out for as long as somebody is connected, where it goes by that, or until it lapses.
            self.in_disorder = bool(self._source.crash_wait_ms)
        if errors:
            raise errors[0]

    async def _take_over(self) -> int:
        redis_ms = await self._registry.clock_ms()
        found: list[tuple[int, str]] = []

        def note(page: list[Tracked]) -> None:
            found.extend((tracked.tracked_ms, tracked.broker_id) for tracked in page)
            self._fed.update({tracked.pool for tracked in page})

        dropped, silent = await take_over(client=self._client, queue=self._queue, source=self._source, on_tracked=note)
        self._submitter.begin_late(silent)
        self._queue.inherit(found, redis_ms)
        return dropped

    def stop(self) -> None:
        """Poll no more; what has begun is finished. Nothing is cancelled in the middle of a call to Redis."""
        self._stop.set()
        self.acknowledger.stop()
        if self._waiting is not None:
            self._waiting.cancel()

    async def hand_back(self) -> int:
        """Nobody will own the queue after us: show again what waits in the pools."""
        if isinstance(self._source, Asking):
            # Else a part of it would come to us at once, and go back after what is newer.
            await self._source.ask_no_more()
        return await hand_back(client=self._client, queue=self._queue, source=self._source, alarms=self._alarms)

    def is_stuck(self) -> bool:
        """Whether it has neither polled nor waited for room for a minute: something below us does not come back."""
        return self._clock.boot_ms() - self._alive_ms > STUCK_MS and not self._draining

    @property
    def ms_since_poll(self) -> int | None:
        """None for one that never polled."""
        return None if self._polled_ms is None else round(self._clock.boot_ms() - self._polled_ms)

    def _ours(self) -> bool:
        return self.lease.held and not self._stop.is_set()

    async def _poll_when_quiet(self) -> None:
        if self.in_disorder:
            wait_ms = self._source.crash_wait_ms
            log.info(
                "queue %s: its last owner died, what it was given comes again within %d ms", self.config.name, wait_ms
            )
            until_ms = self._clock.boot_ms() + wait_ms
            while self._ours() and self._clock.boot_ms() < until_ms:
                self._alive_ms = self._clock.boot_ms()
                await self._rest(min(until_ms - self._clock.boot_ms(), STUCK_MS / 2) / 1000)
            self.in_disorder = not self._ours()
        await self._poll()

    async def _is_more_out_than_known(self, dropped: int) -> bool:
        """Of what is out at the source: somebody may have been given it who did not live to track it."""
        try:
            # What was acked at the source may be tracked still, and what a nack shows again is not tracked any more.
            shown = await self.acknowledger.catch_up()
            depth = await self._source.depth()
        except SourceUnavailable as error:
            log.warning("%s", error)
            return True
        return depth.invisible - depth.delayed > await self._queue.out_count() + shown + dropped

    async def _poll(self) -> None:
        pause_s, told_full = _RETRY_FROM_S, False
        while self._ours():
            self._alive_ms = self._clock.boot_ms()
            if self._submitter.is_full:
                if not told_full:
                    text = f"queue {self.config.name} is read no further: too much waits for pools that do not answer"
                    self._alarms.add("QUEUE_FULL", "ERROR", text)
                told_full = True
                await self._rest(_RETRY_FROM_S)
                continue
            told_full = False
            shares = self._shares()
            others = bool(self._directory.pools - shares.keys() - {DEFAULT_POOL})
            most = POLL_MOST if shares else FIRST_POLL_MOST
            room = await self._rooms.wait(shares, most, others=others, by_groups=self._source.gives_few_groups)
            if not room or not self._ours():
                continue
            async with self._submitter.between_batches:
                reached = not self._ours() or await self._take(min(room, POLL_MOST))
            if reached:
                pause_s = _RETRY_FROM_S
            else:
                await self._rest(pause_s)
                pause_s = min(pause_s * 2, _RETRY_TO_S)

    async def _take(self, most: int) -> bool:
        """A batch, if there is one. Returns whether the source could be reached."""
        self._waiting = asyncio.create_task(self._source.poll(most, POLL_WAIT_MS))
        try:
            batch = await self._waiting
        except asyncio.CancelledError:
            if self._stop.is_set():
                return True
            raise
        except SourceUnavailable as error:
            log.warning("%s", error)
            self.counts["poll_errors"] += 1
            return False
        self._polled_ms = self._clock.boot_ms()
        if not batch:
            return True
        failpoint.hit("polled")
        if not self.lease.held:
            await self._give_back(batch)
            return True
        self.in_disorder = bool(self._source.crash_wait_ms)
        await self._admission.admit(batch)
        self.in_disorder = False
        return True

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

    async def _drain(self) -> None:
        """Of a queue that is configured no more: acknowledge what was taken from it, then end."""
        while self._ours() and await self._queue.tracked_count() + await self._queue.settled_count():
            await self._rest(_DRAIN_LOOK_S)
        if self._ours():
            self.drained = True
            log.info("queue %s is configured no more, and nothing of it is under way", self.config.name)

    def _shares(self) -> dict[str, float]:
        """Which part of a batch goes to which pool, as far as that can be told from the last ones."""
        # One that is gone from the configuration has no room, ever; its messages go elsewhere by now.
        fed = {code: count for code, count in self._fed.items() if code in self._directory.pools}
        total = sum(fed.values())
        return {code: count / total for code, count in fed.items()}

    def _on_room(self, code: str, room: int, taken: int) -> None:
        self._rooms.note(code, room)
        self._fed[code] += taken
        if sum(self._fed.values()) > REMEMBERED:
            self._fed = Counter({pool: count // 2 for pool, count in self._fed.items() if count > 1})
