"""Long polls that outlive the poll that asked for them: what they bring is kept for the next one.

A poll of the coordinator waits a second, a long poll 20. So a receive goes on when a poll ends or is cancelled, and
what it brings waits here, in its order, until it is handed over, or given back when the source is closed.

Its lists belong to the event loop; what a thread brings is passed over under a lock, because a receive may end while
the source closes: then its own thread has what nobody will take shown again.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fleet.clock import Clock
from fleet.errors import SourceError
from fleet.sources.base import Received
from fleet.sources.daemon_threads import DaemonThreads

log = logging.getLogger("fleet.sources")

MOST = 10
"""Messages per receive."""
REST_MS = 100.0
"""How long a connection rests after a batch that was not full: the next messages may fill one. After a full batch it
does not rest. After an empty one the rest counts from the start of the receive: a long poll has waited longer already,
and a server that answers at once must not make us spin."""


@dataclass(frozen=True, slots=True)
class _Landed:
    wanted: int
    started_ms: float
    messages: list[Received]
    error: Exception | None = None


class LongPolls:
    """Up to `connections` receives at once, and together never more messages than were asked for."""

    def __init__(
        self,
        *,
        name: str,
        connections: int,
        receive: Callable[[int], list[Received]],
        show_again: Callable[[Sequence[Received]], None],
        on_late: Callable[[], None],
        lapse_ms: int,
        clock: Clock,
    ) -> None:
        self._receive = receive
        self._show_again = show_again
        self._on_late = on_late
        self._lapse_ms = lapse_ms
        self._clock = clock
        self._threads = DaemonThreads(name=f"sqs-receive-{name}", most=connections)
        self._loop = asyncio.get_running_loop()
        self._free_at_ms = [0.0] * connections
        """A heap: when each connection that is not receiving may do so again."""
        self._asked = 0
        """Messages that the receives under way may bring."""
        self._ready: deque[tuple[Received, float]] = deque()
        """What came and was not handed over, and until when it is ours."""
        self._was_full = False
        self._failure: Exception | None = None
        self._polls = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._lock = threading.Lock()
        self._landed: list[_Landed] = []
        self._is_closed = False

    async def poll(self, max_messages: int, wait_ms: int) -> list[Received]:
        give_up_ms = self._now_ms() + wait_ms
        if not self._polls:
            self._failure = None  # from a time when nobody asked
        self._polls += 1
        try:
            while True:
                batch = self._hand_over(max_messages)
                if batch:
                    if self._was_full:
                        # There is more: it can travel while the caller works on this. It is within what the caller
                        # asked for.
                        self._ask(max_messages - len(batch))
                    return batch
                if self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise failure
                rest_ms = self._ask(max_messages)
                left_ms = give_up_ms - self._now_ms()
                if left_ms <= 0 or self._is_closed:
                    return []
                await self._news(min(left_ms, rest_ms))
        finally:
            self._polls -= 1

    def close(self) -> list[Received]:
        """Returns what came and was never handed over. What comes from now on is given back by its thread."""
        with self._lock:
            self._is_closed = True
            landed, self._landed = self._landed, []
        late = [received for one in landed for received in one.messages]
        kept = [received for received, _ in self._ready]
        self._ready.clear()
        self._threads.stop()
        self._wake()
        return kept + late

    def _now_ms(self) -> float:
        return self._clock.boot_ms()

    def _hand_over(self, most: int) -> list[Received]:
        batch: list[Received] = []
        now_ms = self._now_ms()
        while self._ready and len(batch) < most:
            received, lapses_ms = self._ready.popleft()
            # One that is no longer ours comes again by itself, and would only be a copy.
            if lapses_ms > now_ms:
                batch.append(received)
        return batch

    def _ask(self, most: int) -> float:
        """Start what may be started. Returns in how many ms a resting connection could do more."""
        now_ms = self._now_ms()
        room = most - self._asked - len(self._ready)
        while room > 0 and self._free_at_ms and not self._is_closed:
            if self._free_at_ms[0] > now_ms:
                # A millisecond more than due: timers may fire a little early, and the loop would then spin.
                return self._free_at_ms[0] - now_ms + 1
            heapq.heappop(self._free_at_ms)
            want = min(MOST, room)
            room -= want
            self._asked += want
            self._threads.submit(partial(self._fetch, want))
        return float("inf")

    def _fetch(self, want: int) -> None:
        """One receive, in a thread."""
        started_ms = self._now_ms()
        try:
            landed = _Landed(want, started_ms, self._receive(want))
        except Exception as error:
            landed = _Landed(want, started_ms, [], error)
        with self._lock:
            if not self._is_closed and self._tell(landed):
                return
        if landed.messages:
            self._show_again(landed.messages)
        self._on_late()

    def _tell(self, landed: _Landed) -> bool:
        """Pass it to the loop. False if the loop is gone."""
        if not self._landed:
            try:
                self._loop.call_soon_threadsafe(self._land)
            except RuntimeError:  # the loop ended, and nobody had closed us
                return False
        self._landed.append(landed)
        return True

    def _land(self) -> None:
        with self._lock:
            landed, self._landed = self._landed, []
        now_ms = self._now_ms()
        for one in landed:
            self._asked -= one.wanted
            got = len(one.messages)
            heapq.heappush(self._free_at_ms, _free_at_ms(one, now_ms))
            if one.error is not None:
                self._note(one.error)
                continue
            self._was_full = got == one.wanted
            self._ready.extend((received, now_ms + self._lapse_ms) for received in one.messages)
        self._wake()

    def _note(self, error: Exception) -> None:
        if self._polls or not isinstance(error, SourceError):
            self._failure = error
        else:
            # No poll is waiting: the next one tries for itself, and may find the queue well again.
            log.debug("%s", error)

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    async def _news(self, timeout_ms: float) -> None:
        waiting = self._loop.create_future()
        self._waiting.add(waiting)
        timer = self._loop.call_later(timeout_ms / 1000, _set, waiting)
        try:
            await waiting
        finally:
            timer.cancel()
            self._waiting.discard(waiting)


def _free_at_ms(landed: _Landed, now_ms: float) -> float:
    got = len(landed.messages)
    if got == landed.wanted:
        return now_ms
    return (now_ms if got else landed.started_ms) + REST_MS


def _set(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
