"""What waits for pools that do not answer, and what becomes of it once they do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import pytest

from coordinator import late
from coordinator.answers import PATIENCE_S
from coordinator.late import LATE_MOST, LATE_MOST_BYTES, LatePools
from coordinator.route import route
from coordinator.submit import Portion, Untaken
from fleet.errors import Fenced, StateUnavailable
from fleet.state.queue import Tracked, Tracking
from tests.unit.coordinator.standins import Journal, Lease, Queue, Source, received, tracked


class Pools:
    """Those that were given up know the number of the call; what is submitted to one that is away is not answered."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.away = 0
        """How many calls are not answered."""

    def give_up(self, code: str) -> int:
        return 1

    async def submit(self, code: str, portion: Portion, batch_id: str) -> Untaken:
        ids = [r.received.broker_id for r, _ in portion]
        self._journal.append(("submit", code, batch_id, *ids))
        if self.away:
            self.away -= 1
            raise StateUnavailable(f"pool {code} does not answer")
        return []


class World:
    """Every message that is tracked is lost, unless it is in `there`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.journal: Journal = []
        self.queue, self.source, self.lease = Queue(self.journal), Source(self.journal), Lease()
        self.pools = Pools(self.journal)
        self.there: set[str] = set()
        self.rests: list[float] = []
        self.over = asyncio.Event()
        self.late = LatePools(
            client=cast(Any, None),
            queue=cast(Any, self.queue),
            source=self.source,
            lease=cast(Any, self.lease),
            submitter=cast(Any, self.pools),
            ours=lambda: not self.over.is_set(),
            rest=self._rest,
        )
        monkeypatch.setattr(late, "fence", self._fence)
        monkeypatch.setattr(late, "lost_of", self._lost_of)

    async def _rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        await asyncio.sleep(seconds)

    async def _fence(self, client: object, queue: object, code: str, *, call: int = 0) -> None:
        self.journal.append(("fence", code, call))

    async def _lost_of(self, client: object, queue: object, share: Sequence[Tracked]) -> list[Tracked]:
        return [one for one in share if one.broker_id not in self.there]

    def falls_silent(self, code: str, call: Callable[[], Coroutine[Any, Any, Untaken]], *broker_ids: str) -> None:
        self.late.fell_silent(code, time.monotonic(), asyncio.create_task(call()), portion(*broker_ids), "b1")
        self.queue.records |= {broker_id: tracked(broker_id) for broker_id in broker_ids}

    async def caught_up(self) -> None:
        """The late pools run for a minute, which is over at once."""
        running = asyncio.create_task(self.late.run())
        await asyncio.wait([running], timeout=60)
        self.over.set()
        async with asyncio.timeout(10):
            await running


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def portion(*broker_ids: str, **body: Any) -> Portion:
    routed, _ = route([received(broker_id, **body) for broker_id in broker_ids], lambda code: code)
    return [(r, Tracking("new", "1")) for r in routed]


async def unanswered() -> Untaken:
    raise StateUnavailable("pool P does not answer")


async def test_a_call_that_is_answered_at_last_is_not_repeated(world: World) -> None:
    async def slow() -> Untaken:
        await asyncio.sleep(5)
        return []

    world.falls_silent("P", slow, "1")
    assert "P" in world.late
    await world.caught_up()
    assert "P" not in world.late
    assert world.journal == []


async def test_what_a_late_answer_did_not_take_goes_back(world: World) -> None:
    async def full() -> Untaken:
        return [(*one, 30) for one in portion("1", "2")]

    world.falls_silent("P", full, "1", "2")
    await world.caught_up()
    assert world.journal == [("untrack", "1", "2"), ("nack", ("newest-1", 30_000), ("newest-2", 30_000))]


async def test_of_a_call_that_failed_only_what_did_not_arrive_is_submitted_again_behind_a_fence(world: World) -> None:
    world.there = {"1"}
    world.falls_silent("P", unanswered, "1", "2", "3")
    world.queue.records["3"] = tracked("3", token="2")  # taken anew meanwhile, and submitted by whoever did so
    await world.caught_up()
    assert world.journal == [("fence", "P", 1), ("submit", "P", "b1", "2")]


async def test_what_came_for_it_meanwhile_follows_in_its_order(world: World) -> None:
    world.falls_silent("P", unanswered, "1")
    for number in ("2", "3"):
        world.late.wait("P", portion(number), f"b{number}")
        world.queue.records[number] = tracked(number)
    await world.caught_up()
    assert [step for step in world.journal if step[0] == "submit"] == [
        ("submit", "P", "b1", "1"),
        ("submit", "P", "b2", "2"),
        ("submit", "P", "b3", "3"),
    ]


async def test_one_that_stays_away_is_asked_again_after_pauses_that_grow(world: World) -> None:
    world.pools.away = 5
    world.falls_silent("P", unanswered, "1")
    await world.caught_up()
    assert [rest for rest in world.rests if rest != late._LOOK_S][:2] == [0.25, 1.0]
    assert world.rests.count(2.0) == 3
    assert "P" not in world.late


async def test_an_error_that_says_that_the_queue_is_not_ours_ends_all(world: World) -> None:
    async def stale() -> Untaken:
        raise Fenced("queue q has another owner")

    world.falls_silent("P", stale, "1")
    with pytest.raises(Fenced, match="another owner"):
        await world.late.run()


async def test_who_is_stopped_repeats_nothing_more(world: World) -> None:
    world.pools.away = 10**6
    world.falls_silent("P", unanswered, "1")
    await world.caught_up()
    submitted = sum(step[0] == "submit" for step in world.journal)
    await asyncio.sleep(60)
    assert sum(step[0] == "submit" for step in world.journal) == submitted


async def test_a_pool_that_was_silent_at_the_take_over_is_fenced_and_searched_before_it_is_fed(world: World) -> None:
    world.late.begin({"P"})
    world.late.wait("P", portion("new"), "b2")
    world.queue.records = {"left": tracked("left"), "of another": tracked("of another", pool="Q")}
    world.queue.pages = [[*world.queue.records.values()]]
    await world.caught_up()
    assert world.journal == [("fence", "P", 0), ("look",), ("untrack", "left"), ("nack", ("newest-left", 0))]
    assert "P" not in world.late, "what is newer comes again behind it, so nothing waits"


async def test_a_batch_under_way_is_waited_for_before_a_pool_is_taken_over(world: World) -> None:
    world.late.begin({"P"})
    async with world.late.between_batches:
        running = asyncio.create_task(world.late.run())
        await asyncio.sleep(30)
        assert world.journal == [("fence", "P", 0)]
    await asyncio.sleep(1)
    assert world.journal[1:] == [("look",)]
    world.over.set()
    await running


def test_the_queue_is_read_on_until_too_many_wait_or_too_much(world: World) -> None:
    assert not world.late.is_full
    world.late.begin({"P", "Q"})
    world.late.wait("P", portion("m") * LATE_MOST, "b")
    assert not world.late.is_full
    world.late.wait("Q", portion("m"), "b")
    assert world.late.is_full


def test_a_few_that_are_large_are_too_much_too(world: World) -> None:
    world.late.begin({"P"})
    ((large, _),) = one = portion("m", payload="x" * 100_000)
    world.late.wait("P", one * (LATE_MOST_BYTES // len(large.received.body)), "b")
    assert not world.late.is_full
    world.late.wait("P", one, "b")
    assert world.late.is_full


def test_a_pool_that_was_silent_at_the_take_over_is_known_to_be(world: World) -> None:
    world.late.begin({"P"})
    assert world.late.is_known_silent(0.0)


async def test_a_pool_is_known_to_be_silent_after_a_whole_patience_and_no_more_once_it_answers(world: World) -> None:
    now_s = time.monotonic()
    assert not world.late.is_known_silent(now_s)
    world.late.fell_silent("P", now_s, asyncio.create_task(unanswered()), portion("1"), "b")
    assert not world.late.is_known_silent(now_s + PATIENCE_S - 0.001)
    assert world.late.is_known_silent(now_s + PATIENCE_S)
    await world.caught_up()
    assert not world.late.is_known_silent(now_s + PATIENCE_S)
