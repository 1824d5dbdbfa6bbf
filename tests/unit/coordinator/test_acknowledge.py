"""In which order outcomes are applied: a crash between any two of these steps must lose nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from coordinator.acknowledge import Acknowledger
from fleet.errors import SourceUnavailable
from fleet.state.queue import Settled
from tests.unit.coordinator.standins import Journal, Lease, Queue, Source


class World:
    def __init__(self) -> None:
        self.journal: Journal = []
        self.queue, self.source, self.lease = Queue(self.journal), Source(self.journal), Lease()
        self.counts: Counter[str] = Counter()
        self.acknowledger = Acknowledger(
            queue=cast(Any, self.queue), source=self.source, lease=cast(Any, self.lease), counts=self.counts
        )

    async def apply(self, *settled: Settled) -> int:
        self.queue.settles = [list(settled)]
        return await self.acknowledger.catch_up()


@pytest.fixture
def world() -> World:
    return World()


def acked(broker_id: str) -> Settled:
    return Settled(broker_id, "1", True, 0, f"handle-{broker_id}")


def nacked(broker_id: str, delay_ms: int = 0) -> Settled:
    return Settled(broker_id, "1", False, delay_ms, f"handle-{broker_id}")


async def test_an_ack_reaches_the_source_before_it_is_untracked_and_a_nack_after(world: World) -> None:
    await world.apply(acked("a"), nacked("n", 30_000))
    assert world.journal == [("ack", "a"), ("untrack", "n", "a"), ("nack", ("newest-n", 30_000))]
    assert world.counts == {"acked": 1, "nacked": 1}


async def test_what_was_applied_is_dropped_with_the_next_look_and_not_before(world: World) -> None:
    await world.apply(acked("a"), nacked("n"))
    assert world.queue.applied == [0, 2]


async def test_while_it_runs_what_was_applied_is_dropped_once(world: World) -> None:
    world.queue.settles = [[acked("a"), acked("b")]]
    running = asyncio.create_task(world.acknowledger.run())
    async with asyncio.timeout(5):
        for _ in range(2):
            await world.queue.nothing_left.wait()
            world.queue.nothing_left.clear()
            world.acknowledger.wake.set()
        await world.queue.nothing_left.wait()
    world.acknowledger.stop()
    await running
    assert world.queue.applied == [0, 2, 0, 0]


async def test_an_ack_whose_handle_expired_stays_tracked(world: World) -> None:
    world.source.expired = {"handle-late"}
    await world.apply(acked("late"), acked("a"))
    assert world.journal == [("ack", "late", "a"), ("untrack", "a")]
    assert world.counts["acked"] == 1


async def test_a_nack_that_is_not_tracked_any_more_is_not_shown_again(world: World) -> None:
    world.queue.forgotten = {"gone"}
    assert await world.apply(nacked("gone"), nacked("n")) == 1
    assert world.journal == [("untrack", "gone", "n"), ("nack", ("newest-n", 0))]


async def test_a_nack_whose_message_the_source_does_not_know_is_not_counted_as_shown(world: World) -> None:
    world.source.expired = {"newest-n1"}
    assert await world.apply(nacked("n1"), nacked("n2")) == 1


async def test_an_outcome_of_another_token_is_dropped_and_nothing_is_done_for_it(world: World) -> None:
    await world.apply(Settled("old", "0", True, 0, ""), Settled("old", "0", False, 0, ""))
    assert (world.journal, world.queue.applied) == ([], [0, 2])


@pytest.mark.parametrize(("is_looked_into", "hidden_ms"), [(False, {"n": 30_000}), (True, {})])
async def test_how_long_a_nack_is_hidden_is_kept_for_a_source_that_cannot_be_inspected(
    world: World, is_looked_into: bool, hidden_ms: dict[str, int]
) -> None:
    world.source.is_looked_into = is_looked_into
    await world.apply(acked("a"), nacked("n", 30_000))
    assert world.queue.hidden_ms == hidden_ms


async def test_catching_up_raises_while_the_source_is_away_and_running_tries_again(world: World) -> None:
    world.source.away = 1
    with pytest.raises(SourceUnavailable):
        await world.apply(acked("a"))
    world.source.away, world.queue.settles = 1, [[acked("a")]]
    running = asyncio.create_task(world.acknowledger.run())
    async with asyncio.timeout(5):
        await world.queue.nothing_left.wait()
    world.acknowledger.stop()
    await running
    assert world.journal == [("ack", "a"), ("untrack", "a")]


async def test_once_the_lease_is_gone_nothing_is_applied_and_nothing_dropped(world: World) -> None:
    world.lease.held = False
    assert await world.apply(acked("a"), nacked("n")) == 0
    assert (world.journal, world.queue.applied) == ([], [0])
