"""Reads one queue: asks how much its pools have room for, polls that many, and admits the batch."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from coordinator.admit import Admission
from coordinator.directory import Directory
from coordinator.late import LatePools
from coordinator.rooms import Rooms
from coordinator.spread import Spread
from fleet import failpoint
from fleet.alarms import Alarms
from fleet.clock import Clock
from fleet.errors import SourceUnavailable
from fleet.lease import Lease
from fleet.message import DEFAULT_POOL
from fleet.sources.base import Receipt, Received, Source
from fleet.state.pool import SHARE
from fleet.waiting import Backoff

log = logging.getLogger("fleet.coordinator")

POLL_MOST = 500
FIRST_POLL_MOST = SHARE
"""The first poll, before we know where a queue's messages go, takes no more than the smallest pool can."""
POLL_WAIT_MS = 1000
"""Short, so that a lost lease or a stop is seen soon. A source that can waits this long for its first message."""
_RETRY_S = (0.2, 5.0)
STUCK_MS = 60_000.0


class Consumer:
    """Polls for as long as the queue is ours, and admits each batch before it asks for the next."""

    def __init__(
        self,
        *,
        name: str,
        source: Source,
        lease: Lease,
        directory: Directory,
        rooms: Rooms,
        spread: Spread,
        late: LatePools,
        admission: Admission,
        clock: Clock,
        alarms: Alarms,
        counts: Counter[str],
        in_disorder: bool,
        ours: Callable[[], bool],
        rest: Callable[[float], Awaitable[None]],
    ) -> None:
        """`rest`: wait for so many seconds, or until we are stopped."""
        self._name = name
        self._source = source
        self._lease = lease
        self._directory = directory
        self._rooms = rooms
        self._spread = spread
        self._late = late
        self._admission = admission
        self._clock = clock
        self._alarms = alarms
        self._counts = counts
        self._ours = ours
        self._rest = rest
        self.in_disorder = in_disorder
        """Whether more may be out at the source than is tracked. Whoever owns the queue next has to wait for that."""
        self._alive_ms = clock.boot_ms()
        self._polled_ms: float | None = None
        self._stopped = False
        self._polling: asyncio.Task[list[Received]] | None = None

    async def run(self) -> None:
        if self.in_disorder:
            await self._wait_for_what_is_out()
        await self._poll()

    def stop(self) -> None:
        """Poll no more; what has begun is finished."""
        self._stopped = True
        if self._polling is not None:
            self._polling.cancel()

    def note_alive(self) -> None:
        self._alive_ms = self._clock.boot_ms()

    def is_stuck(self) -> bool:
        """Whether it has neither polled nor waited for room for a minute: something below us hangs."""
        return self._clock.boot_ms() - self._alive_ms > STUCK_MS

    @property
    def ms_since_poll(self) -> int | None:
        """None for one that never polled."""
        return None if self._polled_ms is None else round(self._clock.boot_ms() - self._polled_ms)

    async def _wait_for_what_is_out(self) -> None:
        wait_ms = self._source.crash_wait_ms
        log.info("queue %s: its last owner died, what it was given comes again within %d ms", self._name, wait_ms)
        until_ms = self._clock.boot_ms() + wait_ms
        while self._ours() and self._clock.boot_ms() < until_ms:
            self.note_alive()
            await self._rest(min(until_ms - self._clock.boot_ms(), STUCK_MS / 2) / 1000)
        self.in_disorder = not self._ours()

    async def _poll(self) -> None:
        backoff, told_full = Backoff(*_RETRY_S), False
        while self._ours():
            self.note_alive()
            if self._late.is_full:
                if not told_full:
                    text = f"queue {self._name}: reading stopped, too many messages wait for pools that do not answer"
                    self._alarms.add("QUEUE_FULL", "ERROR", text)
                told_full = True
                await self._rest(_RETRY_S[0])
                continue
            told_full = False
            room = await self._room()
            if not room or not self._ours():
                continue
            async with self._late.between_batches:
                reached = not self._ours() or await self._take(min(room, POLL_MOST))
            if reached:
                backoff.renew()
            else:
                await self._rest(backoff.spend())

    async def _room(self) -> int:
        """How many messages the pools can take; 0 after a while without room."""
        pools = self._directory.pools
        shares = self._spread.shares(pools)
        others = bool(pools - shares.keys() - {DEFAULT_POOL})
        most = POLL_MOST if shares else FIRST_POLL_MOST
        return await self._rooms.wait(shares, most, others=others, by_groups=self._source.gives_few_groups)

    async def _take(self, most: int) -> bool:
        """A batch, if there is one. Returns whether the source could be reached."""
        self._polling = asyncio.create_task(self._source.poll(most, POLL_WAIT_MS))
        try:
            batch = await self._polling
        except asyncio.CancelledError:
            if self._stopped:
                return True
            raise
        except SourceUnavailable as error:
            log.warning("%s", error)
            self._counts["poll_errors"] += 1
            # What was on the line when it broke is out, until our next poll has it shown again.
            self.in_disorder = bool(self._source.crash_wait_ms)
            return False
        self._polled_ms = self._clock.boot_ms()
        if not batch:
            self.in_disorder = False
            return True
        failpoint.hit("polled")
        if not self._lease.held:
            # The queue may be somebody else's by now: show it all again.
            await self._source.nack([(Receipt(r.broker_id, r.handle), 0) for r in batch])
            return True
        # If we end before all of it is tracked, the next owner cannot know of the rest.
        self.in_disorder = bool(self._source.crash_wait_ms)
        await self._admission.admit(batch)
        self.in_disorder = False
        return True
