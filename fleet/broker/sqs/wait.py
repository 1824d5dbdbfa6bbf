"""Receives that wait: askers in a row for each queue, and one call for all of them when something may have come.

A signal, a due time or five seconds causes it. A client that has gone is dropped before it is given anything; what was
taken for it all the same is shown to others again, as if it had not been shown.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from fleet.state.engine import Showing, Stale, Taking
from fleet.waiting import happens

LOOK_S = 5.0
"""How often is looked without a signal: one may be lost."""
MOST_AT_ONCE = 100
"""Messages may have 1 MiB. An answer that takes longer than Redis is waited for is lost, with all that it showed."""


@dataclass(eq=False)
class Asker:
    most: int
    visibility_s: int
    until_s: float
    """By the loop's clock."""
    is_gone: Callable[[], bool]
    answer: asyncio.Future[list[tuple[int, Showing]]]
    given: list[tuple[int, Showing]] = field(default_factory=list)


Receive = Callable[[int, int, int, int], Awaitable[Taking]]
"""(partition, most, visibility_s, per_lane)."""


class Receiving:
    """All that is received from one queue in this process. `put_back`: what nobody could be given."""

    def __init__(
        self,
        *,
        partitions: int,
        ordered: bool,
        receive: Receive,
        put_back: Callable[[int, Sequence[Showing]], Awaitable[None]],
    ) -> None:
        self._partitions = partitions
        self._ordered = ordered
        self._receive = receive
        self._put_back = put_back
        self._askers: deque[Asker] = deque()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._start = 0
        self._is_retired = False
        self._is_cut = False
        """Whether there may be more for those who were given nothing: one call does not carry it all."""
        self.is_over = False
        """Whether as many are out as may be, when we last looked."""

    def on_signal(self) -> None:
        self._news.set()

    def retire(self) -> None:
        """Signals come to another from now on: who waits is told to go there."""
        self._is_retired = True
        self._news.set()

    def end(self) -> None:
        """Nobody waits any longer."""
        for asker in self._askers:
            asker.until_s = 0.0
        self._news.set()

    @property
    def waiting(self) -> int:
        return len(self._askers)

    async def ask(
        self, most: int, *, visibility_s: int, wait_s: float, is_gone: Callable[[], bool]
    ) -> list[tuple[int, Showing]]:
        """Up to so many, with the partition of each."""
        loop = asyncio.get_running_loop()
        asker = Asker(most, visibility_s, loop.time() + wait_s, is_gone, loop.create_future())
        self._askers.append(asker)
        self._news.set()
        if self._task is None:
            self._task = loop.create_task(self._work())
        return await asker.answer

    async def _work(self) -> None:
        try:
            while self._askers:
                self._news.clear()
                due_ms = await self._round()
                if not self._askers:
                    return
                if self._is_retired:
                    raise Stale("another queue of that name is known by now")
                now_s = asyncio.get_running_loop().time()
                next_s = min(asker.until_s for asker in self._askers) - now_s
                # A millisecond more than due: timers may fire a little early.
                due_s = (due_ms + 1) / 1000 if due_ms is not None else LOOK_S
                await happens(self._news, within_s=max(0.0, min(next_s, due_s, LOOK_S)))
        except Exception as error:
            self._fail(error)
        finally:
            self._task = None

    def _fail(self, error: Exception) -> None:
        for asker in self._askers:
            if asker.given:
                # Another partition could not be asked; what this one gave would be hidden from everybody.
                self._answer(asker)
            elif not asker.answer.done():
                asker.answer.set_exception(error)
        self._askers.clear()

    async def _round(self) -> int | None:
        """Ask once for everybody. Returns after how many ms there may be something; None: a signal will say."""
        for asker in self._askers:
            if asker.is_gone():
                self._answer(asker)
        askers = [asker for asker in self._askers if not asker.answer.done()]
        due_ms: int | None = None
        self._is_cut = False
        # Mostly all ask for the same time.
        for visibility_s in {asker.visibility_s: None for asker in askers}:
            group = [asker for asker in askers if asker.visibility_s == visibility_s]
            soon_ms = await self._round_of(group, visibility_s)
            if soon_ms is not None:
                due_ms = soon_ms if due_ms is None else min(due_ms, soon_ms)
        now_s = asyncio.get_running_loop().time()
        for asker in askers:
            # Of a round that was cut, who got nothing was not asked for yet.
            if asker.given or (asker.until_s <= now_s and not self._is_cut) or asker.is_gone():
                self._answer(asker)
        self._askers = deque(asker for asker in self._askers if not asker.answer.done())
        return due_ms

    def _answer(self, asker: Asker) -> None:
        if not asker.answer.done():
            asker.answer.set_result(asker.given)

    async def _round_of(self, askers: list[Asker], visibility_s: int) -> int | None:
        due_ms: int | None = None
        self._start = (self._start + 1) % self._partitions
        for step in range(self._partitions):
            partition = (self._start + step) % self._partitions
            wanted = sum(asker.most - len(asker.given) for asker in askers)
            if not wanted:
                return 0
            widest = max(asker.most - len(asker.given) for asker in askers)
            taking = await self._receive(partition, min(wanted, MOST_AT_ONCE), visibility_s, widest)
            self.is_over = taking.is_over
            self._is_cut |= len(taking.showings) == MOST_AT_ONCE < wanted
            if taking.showings:
                # Only a call that finds nothing has us told of what comes next.
                due_ms = 0
                over = self._share(partition, taking.showings, askers)
                if over:
                    await self._put_back(partition, over)
            if taking.due_ms is not None:
                due_ms = taking.due_ms if due_ms is None else min(due_ms, taking.due_ms)
        return due_ms

    def _share(self, partition: int, showings: Sequence[Showing], askers: list[Asker]) -> list[Showing]:
        """Give each its part, in order. Returns what nobody has room for."""
        open_ = deque(asker for asker in askers if len(asker.given) < asker.most and not asker.answer.done())
        if self._ordered:
            return self._share_lanes(partition, showings, open_)
        for place, one in enumerate(showings):
            while open_ and len(open_[0].given) >= open_[0].most:
                open_.popleft()
            if not open_:
                return list(showings[place:])
            open_[0].given.append((partition, one))
        return []

    def _share_lanes(self, partition: int, showings: Sequence[Showing], askers: Iterable[Asker]) -> list[Showing]:
        """What is of one group goes to one asker, as far as it has room: the rest of a group waits for its turn."""
        lanes: dict[str, list[Showing]] = {}
        for one in showings:
            lanes.setdefault(one.group, []).append(one)
        over: list[Showing] = []
        for lane in lanes.values():
            rooms = [(asker.most - len(asker.given), asker) for asker in askers]
            fits = next((asker for room, asker in rooms if room >= len(lane)), None)
            asker = fits or max(rooms, key=lambda one: one[0], default=(0, None))[1]
            room = asker.most - len(asker.given) if asker is not None else 0
            if asker is not None:
                asker.given += [(partition, one) for one in lane[:room]]
            over += lane[room:]
        return over
