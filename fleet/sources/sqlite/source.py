"""Taking messages out of an embedded queue: leases with a deadline, in order within each group.

What a poll may give of a group is its oldest messages up to the first one that is invisible. A message
is leased by moving its `visible_at_ms` into the future; nothing has to run for a lease to lapse.

That future is in the file's own time, which survives a restart of the machine and which no step of the wall clock moves
(`clock.py`).
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from fleet.clock import Clock
from fleet.sources.base import Depth, Receipt, Received
from fleet.sources.sqlite import bell as file_bell
from fleet.sources.sqlite.bell import FileBell
from fleet.sources.sqlite.file import SEGMENT_BITS, QueueFile, check_place
from fleet.sources.sqlite.lease import Leases

T = TypeVar("T")

_LOOK_S = 0.25
"""How often a waiting poll looks without a ring: a producer may die between its commit and its ring."""
_LOOK_DEAF_S = 0.02


class SqliteSource:
    """One embedded queue, read by one coordinator at a time."""

    holds_groups = True
    shows_in_order = True
    is_looked_into = True
    gives_few_groups = False
    crash_wait_ms = 0

    def __init__(
        self, *, path: Path, queue: str, visibility_ms: int, clock: Clock, busy_timeout_ms: int = 10_000
    ) -> None:
        self.visibility_ms = visibility_ms
        self._file = QueueFile(path=path, queue=queue, clock=clock, busy_timeout_ms=busy_timeout_ms)
        self._leases = Leases(file=self._file)
        self._bell = FileBell(path=path)
        self._is_open = False

    async def open(self) -> None:
        await self._file.open()
        if not self._is_open:
            self._bell.open()
            self._is_open = True

    async def check(self) -> None:
        await asyncio.to_thread(check_place, self._file.path)

    async def poll(self, max_messages: int, wait_ms: int) -> list[Received]:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + wait_ms / 1000
        while True:
            rings = self._bell.rings
            received, ready_in_ms = await self._take(max_messages)
            left_s = give_up - loop.time()
            if received or left_s <= 0 or not self._is_open:
                return received
            # A millisecond more than due: timers may fire a little early, and the loop would then spin.
            due_s = (ready_in_ms + 1) / 1000 if ready_in_ms is not None else left_s
            look_s = _LOOK_S if self._bell.hears_others else _LOOK_DEAF_S
            await self._bell.wait(after=rings, timeout_s=min(left_s, due_s, look_s))

    async def ack(self, receipts: Sequence[Receipt]) -> list[bool]:
        return await self._settle(lambda db: self._leases.delete(db, [one.handle for one in receipts], self._now()))

    async def nack(self, receipts: Sequence[tuple[Receipt, int]]) -> list[bool]:
        handles = [one.handle for one, _ in receipts]
        delays = [delay_ms for _, delay_ms in receipts]
        result = await self._settle(lambda db: self._leases.show_again(db, handles, delays, self._now()))
        # Another process may be the one that polls now: this one may have lost the queue to it.
        file_bell.ring(self._file.path)
        return result

    async def extend(self, receipts: Sequence[Receipt], visibility_ms: int) -> list[bool]:
        handles = [one.handle for one in receipts]
        return await self._settle(lambda db: self._leases.extend(db, handles, visibility_ms, self._now()))

    async def depth(self) -> Depth:
        return await asyncio.wrap_future(self._file.submit(lambda db: self._depth(db, self._now())))

    async def close(self) -> None:
        self._is_open = False
        self._bell.close()
        await self._file.close()

    def _now(self) -> int:
        return self._file.clock.now_ms()

    async def _settle(self, job: Callable[[sqlite3.Connection], T]) -> T:
        result = await asyncio.wrap_future(self._file.submit(job))
        self._bell.ring()  # the next message of a group may have become takeable for a poll that waits
        return result

    async def _take(self, want: int) -> tuple[list[Received], int | None]:
        taking = _Taking(
            file=self._file, leases=self._leases, want=want, visibility_ms=self.visibility_ms, now=self._now
        )
        future = self._file.submit(taking.run)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            if not future.cancel():
                taking.abandon()
            raise

    def _depth(self, db: sqlite3.Connection, now_ms: int) -> Depth:
        queue = self._file.queue
        total, first = db.execute(
            "SELECT coalesce(sum(live), 0), min(segment) FROM segments WHERE queue = ?", (queue,)
        ).fetchone()
        age_s = 0.0
        if first is not None:
            # The oldest message is in the first segment that has any left.
            (sent_ms,) = db.execute(
                """SELECT b.sent_ms FROM bodies b CROSS JOIN messages m ON m.grp = b.grp AND m.seq = b.seq
                    WHERE b.seq >= ? AND b.queue = ? ORDER BY b.seq LIMIT 1""",
                (first << SEGMENT_BITS, queue),
            ).fetchone()
            age_s = max(0.0, (now_ms - sent_ms) / 1000)
        (invisible,) = db.execute(
            "SELECT coalesce(sum(messages), 0) FROM hidden WHERE queue = ? AND until_ms > ?", (queue, now_ms)
        ).fetchone()
        return Depth(waiting=total - invisible, invisible=invisible, oldest_s=age_s)


class _Taking:
    """One look at the queue, which may be given up while the thread is still at it."""

    def __init__(
        self, *, file: QueueFile, leases: Leases, want: int, visibility_ms: int, now: Callable[[], int]
    ) -> None:
        self._file = file
        self._leases = leases
        self._want = want
        self._visibility_ms = visibility_ms
        self._now = now
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._leased: list[Received] | None = None

    def run(self, db: sqlite3.Connection) -> tuple[list[Received], int | None]:
        """What was leased, or in how many ms there may be something."""
        now_ms = self._now()
        ready_at_ms = self._leases.ready_at_ms(db)
        if ready_at_ms is None or ready_at_ms > now_ms or self._want < 1:
            return [], None if ready_at_ms is None else max(0, ready_at_ms - now_ms)
        received = self._leases.take(db, self._want, self._now, self._visibility_ms)
        with self._lock:
            self._leased = received
            is_abandoned = self._is_abandoned
        if is_abandoned:
            self._return(db, received)
        return received, None

    def abandon(self) -> None:
        """Nobody will see what was leased. Give it back, before anything else that the loop asks for from now on."""
        with self._lock:
            self._is_abandoned = True
            leased = self._leased
        if leased:
            self._file.submit(lambda db: self._return(db, leased))

    def _return(self, db: sqlite3.Connection, received: list[Received]) -> None:
        if received:
            self._leases.take_back(db, [one.handle for one in received], self._now())
