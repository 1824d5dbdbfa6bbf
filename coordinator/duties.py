"""What the owner of a queue does for it: take it over, then read it, acknowledge, and look after what is under way."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from coordinator.acknowledge import Acknowledger
from coordinator.admit import Admission
from coordinator.alive import OwnedQueue
from coordinator.bring import Bringer
from coordinator.consume import Consumer
from coordinator.extend import Extender
from coordinator.last_stop import return_all
from coordinator.late import LatePools
from coordinator.parts import Parts
from coordinator.phantoms import Patrol
from coordinator.spread import Spread
from coordinator.submit import Submitter
from coordinator.takeover import take_over
from fleet.config.router import QueueConfig
from fleet.errors import Disordered, SourceUnavailable
from fleet.lease import Lease
from fleet.sources.base import Asking, Source
from fleet.state.queue import Tracked
from fleet.waiting import happens

log = logging.getLogger("fleet.coordinator")

_DRAIN_LOOK_S = 0.5


def found_in_disorder(source: Source, lease: Lease) -> bool:
    """Whether more may be out at the source than is tracked, before anybody has looked: the last owner crashed."""
    return bool(source.crash_wait_ms) and not lease.was_released


class Duties:
    """They run side by side while the lease is held, and end with the first error that says it is not."""

    def __init__(
        self, *, parts: Parts, config: QueueConfig, source: Source, lease: Lease, counts: Counter[str]
    ) -> None:
        self._parts = parts
        self._config = config
        self._source = source
        self._lease = lease
        self._stop = asyncio.Event()
        self.drained = False
        """Nothing of the queue is under way any more, and nothing will be."""
        client, clock, alarms = parts.client, parts.clock, parts.alarms
        queue = self._queue = OwnedQueue(client, config.name, epoch=lease.epoch, clock=clock)
        self._spread = Spread()
        submitter = Submitter(
            client=client,
            queue=queue,
            source=source,
            on_room=self._on_room,
            put_off=parts.rooms.put_off,
            alarms=alarms,
            counts=counts,
        )
        self._late = LatePools(
            client=client,
            queue=queue,
            source=source,
            lease=lease,
            submitter=submitter,
            ours=self._ours,
            rest=self._rest,
        )
        admission = Admission(
            queue=queue,
            source=source,
            lease=lease,
            pool_for=parts.directory.pool_for,
            bringer=Bringer(submitter=submitter, late=self._late, ours=self._ours),
            alarms=alarms,
            counts=counts,
        )
        self._consumer = Consumer(
            name=config.name,
            source=source,
            lease=lease,
            directory=parts.directory,
            rooms=parts.rooms,
            spread=self._spread,
            late=self._late,
            admission=admission,
            clock=clock,
            alarms=alarms,
            counts=counts,
            in_disorder=found_in_disorder(source, lease),
            ours=self._ours,
            rest=self._rest,
        )
        self._acknowledger = Acknowledger(queue=queue, source=source, lease=lease, counts=counts)
        self._extender = Extender(
            queue=queue, source=source, clock=clock, counts=counts, ours=self._ours, rest=self._rest
        )
        self._patrol = Patrol(
            client=client,
            queue=queue,
            source=source,
            clock=clock,
            alarms=alarms,
            ours=self._ours,
            rest=self._rest,
            late=self._late,
        )

    async def run(self) -> None:
        """Until stopped, or until an error says that the queue is not ours any more."""
        returned = await self._take_over()
        if self.in_disorder and not self._config.draining:
            # If we end before we know, the next owner has to find out.
            self._consumer.in_disorder = await self._is_more_out_than_known(returned)
        self._consumer.note_alive()
        work = self._drain() if self._config.draining else self._consumer.run()
        duties = (self._acknowledger.run(), work, self._extender.run(), self._patrol.run(), self._late.run())
        steps = [asyncio.create_task(duty) for duty in duties]
        try:
            await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.stop()
            try:
                await asyncio.wait(steps)
            except asyncio.CancelledError:
                # Abandoned: something below one of them hangs. If it ever comes back, it finds itself cancelled.
                for step in steps:
                    step.cancel()
                raise
        # Look at every error: asyncio prints one that nobody has looked at.
        errors = [error for step in steps if not step.cancelled() and (error := step.exception()) is not None]
        if any(isinstance(error, Disordered) for error in errors):
            # It stays out until it lapses or, with some sources, until its connection is gone.
            self._consumer.in_disorder = bool(self._source.crash_wait_ms)
        if errors:
            raise errors[0]

    def stop(self) -> None:
        """Poll no more; what has begun is finished. Nothing is cancelled in the middle of a call to Redis."""
        self._stop.set()
        self._acknowledger.stop()
        self._consumer.stop()

    async def return_all(self) -> int:
        """Nobody will own the queue after us: show again what waits in the pools."""
        if isinstance(self._source, Asking):
            # Otherwise some of it would come to us at once, and go back behind newer messages.
            await self._source.ask_no_more()
        parts = self._parts
        return await return_all(client=parts.client, queue=self._queue, source=self._source, alarms=parts.alarms)

    def on_settled(self) -> None:
        self._acknowledger.wake.set()

    @property
    def in_disorder(self) -> bool:
        """Whether more may be out at the source than is tracked. Whoever owns the queue next has to wait for that."""
        return self._consumer.in_disorder

    @property
    def ms_since_poll(self) -> int | None:
        return self._consumer.ms_since_poll

    def is_stuck(self) -> bool:
        return self._consumer.is_stuck() and not self._config.draining

    def _ours(self) -> bool:
        return self._lease.held and not self._stop.is_set()

    async def _rest(self, seconds: float) -> None:
        """Wait, unless we are stopped."""
        await happens(self._stop, within_s=seconds)

    def _on_room(self, code: str, room: int, taken: int) -> None:
        self._parts.rooms.note(code, room)
        self._spread.taken(code, taken)

    async def _take_over(self) -> int:
        """Returns how many messages went back and come again at once."""
        redis_ms = await self._parts.registry.clock_ms()
        found: list[tuple[int, str]] = []

        def note(page: list[Tracked]) -> None:
            found.extend((tracked.tracked_ms, tracked.broker_id) for tracked in page)
            self._spread.found({tracked.pool for tracked in page})

        client = self._parts.client
        returned, silent = await take_over(client=client, queue=self._queue, source=self._source, on_tracked=note)
        self._late.begin(silent)
        self._queue.inherit(found, redis_ms)
        return returned

    async def _is_more_out_than_known(self, returned: int) -> bool:
        """The last owner may have been given messages that it did not live to track."""
        try:
            # What was acked at the source may still be tracked, and what a nack shows again is no longer tracked.
            shown = await self._acknowledger.catch_up()
            depth = await self._source.depth()
        except SourceUnavailable as error:
            log.warning("%s", error)
            return True
        return depth.invisible - depth.delayed > await self._queue.out_count() + shown + returned

    async def _drain(self) -> None:
        """The queue is no longer configured: acknowledge what was taken from it, then end."""
        while self._ours() and await self._queue.tracked_count() + await self._queue.settled_count():
            await self._rest(_DRAIN_LOOK_S)
        if self._ours():
            self.drained = True
            log.info("queue %s is no longer configured, and nothing of it is under way", self._config.name)
