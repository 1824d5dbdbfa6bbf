"""One consumer per owned queue: poll, admit, acknowledge, and keep invisible what takes long."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from coordinator.acknowledge import Acknowledger
from coordinator.admit import Admission
from coordinator.directory import Directory
from coordinator.hand_back import hand_back
from coordinator.room import Rooms
from coordinator.takeover import drop, lost_of, take_over
from fleet import failpoint
from fleet.alarms import Alarms
from fleet.clock import Clock
from fleet.config import QueueConfig
from fleet.errors import SourceUnavailable
from fleet.lease import Lease
from fleet.message import DEFAULT_POOL
from fleet.nouns import number
from fleet.sources.base import Asking, Held, Received, Source
from fleet.state.connect import Client
from fleet.state.pool import SHARE
from fleet.state.queue import Queue, Tracked
from fleet.state.registry import Registry

log = logging.getLogger("fleet.coordinator")

POLL_MOST = 500
FIRST_POLL_MOST = SHARE
"""Where a queue's messages go shows once some have gone there; until then no more than the smallest pool takes."""
POLL_WAIT_MS = 1000
"""Short, so that a lost lease or a stop is seen soon; a source that can waits for its first message."""
_RETRY_FROM_S, _RETRY_TO_S = 0.2, 5.0
STUCK_MS = 60_000.0
PHANTOMS_EVERY_S = 60.0
PENDING_DELETE_MS = 14 * 24 * 3600 * 1000
"""How long a message that was acked under an expired handle is remembered: no source keeps one for longer."""
REMEMBERED = 5000
"""Messages whose pools are remembered, to tell the next batch's."""
_DRAIN_LOOK_S = 0.5


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
        self._queue = Queue(client, config.name, epoch=lease.epoch)
        self._draining = draining
        self.drained = False
        self.in_disorder = False
        """Whether more may be out at the source than is tracked, and who comes next has to wait for that."""
        """Nothing of it is under way any more, and nothing will be."""
        self._alive_ms = clock.boot_ms()
        self._stop = asyncio.Event()
        self._waiting: asyncio.Task[list[Received]] | None = None
        self._admission = Admission(
            client=client,
            queue=self._queue,
            source=source,
            lease=lease,
            pool_for=directory.pool_for,
            on_room=self._on_room,
            alarms=alarms,
            counts=self.counts,
        )
        self.acknowledger = Acknowledger(queue=self._queue, source=source, lease=lease, counts=self.counts)

    async def run(self) -> None:
        """Until stopped, or until an error says that the queue is not ours any more."""
        dropped = await take_over(
            client=self._client,
            registry=self._registry,
            queue=self._queue,
            source=self._source,
            on_fed=lambda code: self._fed.update({code: 1}),
        )
        out_of_order = not self._draining and await self._was_left_in_disorder(dropped)
        self._alive_ms = self._clock.boot_ms()
        work = self._drain() if self._draining else self._poll_when_quiet(out_of_order)
        duties = (self.acknowledger.run(), work, self._extend(), self._find_phantoms())
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
        if errors:
            raise errors[0]

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

    async def _poll_when_quiet(self, out_of_order: bool) -> None:
        if out_of_order:
            wait_ms = self._source.crash_wait_ms
            log.info(
                "queue %s: its last owner died, what it was given comes again within %d ms", self.config.name, wait_ms
            )
            self.in_disorder = True
            until_ms = self._clock.boot_ms() + wait_ms
            while self._ours() and self._clock.boot_ms() < until_ms:
                self._alive_ms = self._clock.boot_ms()
                await self._rest(min(until_ms - self._clock.boot_ms(), STUCK_MS / 2) / 1000)
            self.in_disorder = not self._ours()
        await self._poll()

    async def _was_left_in_disorder(self, dropped: int) -> bool:
        """Whether more is out at the source than we know of: somebody was given it who did not live to track it."""
        if not self._source.crash_wait_ms or self.lease.was_given_back:
            return False
        try:
            # What was acked at the source may be tracked still, and what a nack shows again is not tracked any more.
            shown = await self.acknowledger.catch_up()
            depth = await self._source.depth()
        except SourceUnavailable as error:
            log.warning("%s", error)
            return True
        return depth.invisible - depth.delayed > await self._queue.out_count() + shown + dropped

    async def _poll(self) -> None:
        pause_s = _RETRY_FROM_S
        while self._ours():
            self._alive_ms = self._clock.boot_ms()
            shares = self._shares()
            others = bool(self._directory.pools - shares.keys() - {DEFAULT_POOL})
            most = POLL_MOST if shares else FIRST_POLL_MOST
            room = await self._rooms.wait(shares, most, others=others, by_groups=self._source.gives_few_groups)
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
            self._polled_ms = self._clock.boot_ms()
            if not batch:
                continue
            failpoint.hit("polled")
            if not self.lease.held:
                await self._give_back(batch)
                return
            self.in_disorder = bool(self._source.crash_wait_ms)
            await self._admission.admit(batch)
            self.in_disorder = False

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
        """Keep invisible what is still under way, so that it is not redelivered meanwhile.

        What is tracked is looked through four times in a visibility timeout, rather than noted message by message:
        nearly all of it is gone by then, and what Redis tracks the pools bound.
        """
        every_ms = self._source.visibility_ms / 4
        extended_at: dict[str, float] = {}
        while self._ours():
            await self._rest(every_ms / 1000)
            now_ms = await self._registry.clock_ms()
            still: dict[str, float] = {}
            async for page in self._queue.all_tracked():
                aged = [t for t in page if now_ms - extended_at.get(t.broker_id, t.tracked_ms) >= every_ms]
                due = [t for t in aged if t.state != "a"]
                still |= {t.broker_id: extended_at[t.broker_id] for t in page if t.broker_id in extended_at}
                if not aged or not self._ours():
                    continue
                try:
                    await self._ack_again([t for t in aged if t.state == "a"])
                    await self._source.extend([Held(t.broker_id, t.handle) for t in due], self._source.visibility_ms)
                    still |= {t.broker_id: now_ms for t in due}
                except SourceUnavailable as error:
                    log.warning("%s: %d messages may be redelivered while they are under way", error, len(due))
            extended_at = still

    async def _ack_again(self, settled: list[Tracked]) -> None:
        """Of a handle that had expired the source may say meanwhile that its message is gone; then it can go here."""
        if settled:
            gone = await self._source.ack([Held(t.broker_id, t.handle) for t in settled])
            over = [(t.broker_id, t.token) for t, ok in zip(settled, gone, strict=True) if ok]
            if over:
                self.counts["acked"] += len(await self._queue.untrack(over))

    async def _find_phantoms(self) -> None:
        """Drop what is tracked and stands nowhere: it would swallow its own redeliveries."""
        while self._ours():
            await self._rest(PHANTOMS_EVERY_S)
            if not self._ours():
                return
            # One that was tracked just now may be on its way to its pool.
            before_ms = await self._registry.clock_ms() - PHANTOMS_EVERY_S * 1000
            kept_from_ms = before_ms - PENDING_DELETE_MS
            found = 0
            async for page in self._queue.all_tracked():
                old = [tracked for tracked in page if tracked.tracked_ms < before_ms]
                found += await drop(self._queue, self._source, await lost_of(self._client, self._queue, old))
                forgotten = [(t.broker_id, t.token) for t in old if t.state == "a" and t.tracked_ms < kept_from_ms]
                if forgotten:
                    await self._queue.untrack(forgotten)
            if found:
                text = f"{number(found, 'message')} of {self.config.name} tracked and in no pool"
                self._alarms.add("PIPELINE_PHANTOMS", "WARN", text)

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
