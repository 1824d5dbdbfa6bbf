"""What a queue is asked for, and when more may be out at its source than anybody knows of."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.consume import FIRST_POLL_MOST, POLL_MOST, STUCK_MS, Consumer
from coordinator.spread import Spread
from fleet.errors import SourceUnavailable
from fleet.sources.base import Received
from tests.clocks import HandClock
from tests.unit.coordinator.standins import Alarms, Journal, Lease, Source, received


class PolledSource(Source):
    """Answers each poll with what is next in `answers`; a poll that finds none there hangs."""

    crash_wait_ms = 30_000

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.answers: list[list[Received] | Exception] = []
        self.asked: list[int] = []

    async def poll(self, max_messages: int, wait_ms: int) -> list[Received]:
        self.asked.append(max_messages)
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class World:
    """The queue is ours until all answers of its source are spent."""

    def __init__(self, *answers: list[Received] | Exception, in_disorder: bool = False) -> None:
        self.journal: Journal = []
        self.source, self.lease, self.clock = PolledSource(self.journal), Lease(), HandClock()
        self.source.answers = list(answers)
        self.spread, self.counts, self.alarms = Spread(), Counter[str](), Alarms()
        self.late = SimpleNamespace(is_full=False, between_batches=asyncio.Lock())
        self.room = 10_000
        self.rests: list[float] = []
        self.disorder_when_admitted: list[bool] = []
        self.fails: Exception | None = None
        self.consumer = Consumer(
            name="q",
            source=self.source,
            lease=cast(Any, self.lease),
            directory=cast(Any, SimpleNamespace(pools={"P"})),
            rooms=cast(Any, self),
            spread=self.spread,
            late=cast(Any, self.late),
            admission=cast(Any, self),
            clock=self.clock,
            alarms=cast(Any, self.alarms),
            counts=self.counts,
            in_disorder=in_disorder,
            ours=lambda: bool(self.source.answers),
            rest=self._rest,
        )

    async def wait(self, shares: object, wanted: int, **_: Any) -> int:
        return min(self.room, wanted)

    async def admit(self, batch: list[Received]) -> None:
        self.disorder_when_admitted.append(self.consumer.in_disorder)
        if self.fails is not None:
            raise self.fails
        self.journal.append(("admit", *(one.broker_id for one in batch)))

    async def _rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.clock.now_ms += round(seconds * 1000)
        self.late.is_full = False


async def test_the_first_poll_takes_no_more_than_the_smallest_pool_can() -> None:
    world = World([received("1")], [received("2")])
    await world.consumer.run()
    assert world.source.asked == [FIRST_POLL_MOST, FIRST_POLL_MOST]
    world = World([received("1")])
    world.spread.taken("P", 1)
    await world.consumer.run()
    assert world.source.asked == [POLL_MOST]


async def test_while_a_batch_is_admitted_more_is_out_than_is_tracked() -> None:
    world = World([received("1")])
    await world.consumer.run()
    assert (world.disorder_when_admitted, world.consumer.in_disorder) == ([True], False)
    world = World([received("1")])
    world.fails = RuntimeError()
    with pytest.raises(RuntimeError):
        await world.consumer.run()
    assert world.consumer.in_disorder


async def test_where_a_poll_failed_more_may_be_out_until_the_next_one_is_answered() -> None:
    world = World(SourceUnavailable())
    await world.consumer.run()
    assert (world.consumer.in_disorder, world.counts["poll_errors"]) == (True, 1)
    for answer in ([], [received("1")]):
        world = World(SourceUnavailable(), answer)
        await world.consumer.run()
        assert not world.consumer.in_disorder


async def test_of_a_source_that_holds_groups_nothing_can_overtake() -> None:
    world = World(SourceUnavailable())
    world.source.crash_wait_ms = 0
    await world.consumer.run()
    assert not world.consumer.in_disorder


async def test_pauses_grow_while_the_source_is_away_and_begin_anew_once_it_answers() -> None:
    away = SourceUnavailable()
    world = World(away, away, [received("1")], away)
    await world.consumer.run()
    first, second, third = world.rests
    assert second == 2 * first
    assert third == first


async def test_what_came_after_the_lease_had_lapsed_is_shown_to_others_again() -> None:
    world = World([received("1"), received("2")])
    world.lease.held = False
    await world.consumer.run()
    assert world.journal == [("nack", ("handle-1", 0), ("handle-2", 0))]


async def test_it_is_read_no_further_while_too_much_waits_for_pools_that_do_not_answer() -> None:
    world = World([received("1")])
    world.late.is_full = True
    await world.consumer.run()
    assert len(world.rests) == 1
    assert world.alarms.raised["QUEUE_FULL"] == 1
    assert world.journal == [("admit", "1")]


async def test_after_a_crash_of_the_last_owner_it_waits_for_what_that_was_given_and_is_not_stuck_meanwhile() -> None:
    world = World([received("1")], in_disorder=True)
    world.source.crash_wait_ms = round(3 * STUCK_MS)
    await world.consumer.run()
    assert sum(world.rests) * 1000 == 3 * STUCK_MS
    assert max(world.rests) * 1000 < STUCK_MS
    assert world.journal == [("admit", "1")]
    assert not world.consumer.in_disorder


async def test_one_that_is_stopped_in_its_wait_leaves_the_disorder_to_the_next() -> None:
    world = World(in_disorder=True)
    await world.consumer.run()
    assert world.consumer.in_disorder


async def test_a_stop_ends_a_poll_that_waits() -> None:
    world = World([])
    world.consumer._ours = lambda: True
    running = asyncio.create_task(world.consumer.run())
    await asyncio.wait([running], timeout=0.01)
    assert len(world.source.asked) == 2
    world.source.answers = []
    world.consumer._ours = lambda: False
    world.consumer.stop()
    await asyncio.wait_for(running, 1)


async def test_a_minute_without_a_poll_is_stuck() -> None:
    world = World([received("1")])
    assert (world.consumer.is_stuck(), world.consumer.ms_since_poll) == (False, None)
    await world.consumer.run()
    world.clock.now_ms += round(STUCK_MS)
    assert (world.consumer.is_stuck(), world.consumer.ms_since_poll) == (False, STUCK_MS)
    world.clock.now_ms += 1
    assert world.consumer.is_stuck()
