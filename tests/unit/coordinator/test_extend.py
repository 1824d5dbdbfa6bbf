"""What becomes of the messages that are due to be extended."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import pytest

from coordinator.alive import Alive
from coordinator.extend import DUE_AT, LOOK_EVERY, Extender
from tests.clocks import HandClock
from tests.unit.coordinator.standins import Journal, Queue, Source, tracked


class World:
    """An owner whose looks a test lets come by as it likes."""

    def __init__(self) -> None:
        self.journal: Journal = []
        self.clock, self.queue, self.source = HandClock(), Queue(self.journal), Source(self.journal)
        self.alive = cast(Any, self.queue).alive = Alive()
        self.counts: Counter[str] = Counter()
        self.rests: list[float] = []
        self.looks = 0

    def track(self, *broker_ids: str, state: str = "t") -> None:
        self.queue.records |= {broker_id: tracked(broker_id, state=state) for broker_id in broker_ids}
        self.alive.seen(broker_ids, self.clock.now_ms)

    async def look(self, after_ms: float = 0.0, *, times: int = 1) -> Journal:
        """What was asked of source and queue by so many looks."""
        self.journal.clear()
        self.clock.now_ms += round(after_ms)
        self.looks = times
        extender = Extender(
            queue=cast(Any, self.queue),
            source=self.source,
            clock=self.clock,
            counts=self.counts,
            ours=lambda: self.looks > 0,
            rest=self._rest,
        )
        await extender.run()
        return self.journal

    async def _rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.looks -= 1
        self.clock.now_ms += round(seconds * 1000)


@pytest.fixture
def world() -> World:
    return World()


async def test_a_message_is_extended_before_half_of_its_visibility_is_over_and_again_after_that(world: World) -> None:
    world.track("m")
    visibility_ms = world.source.visibility_ms
    assert await world.look(DUE_AT * visibility_ms - 1) == []
    assert await world.look(0) == [("extend", "m")]
    assert world.rests == [LOOK_EVERY * visibility_ms / 1000] * 2
    assert await world.look(0, times=2) == [], "it is young again"


async def test_what_is_tracked_no_more_is_forgotten_and_not_extended(world: World) -> None:
    world.track("gone", "m")
    del world.queue.records["gone"]
    assert await world.look(30_000) == [("extend", "m")]
    assert len(world.alive) == 1


async def test_what_was_settled_under_an_expired_handle_is_acked_again_and_goes_once_the_source_says_so(
    world: World,
) -> None:
    world.track("late", "expired", state="a")
    world.track("m")
    world.source.expired = {"handle-expired"}
    assert await world.look(30_000) == [("ack", "late", "expired"), ("untrack", "late"), ("extend", "m")]
    assert world.counts["acked"] == 1


async def test_while_the_source_is_away_they_stay_due(world: World) -> None:
    world.track("m")
    world.source.away = 1
    assert await world.look(30_000) == []
    assert await world.look() == [("extend", "m")]


async def test_many_are_extended_a_page_at_a_time_and_none_once_we_are_stopped(world: World) -> None:
    world.track(*(str(i) for i in range(1200)))
    assert [len(step) - 1 for step in await world.look(30_000)] == [500, 500, 200]
    assert await world.look(30_000, times=0) == []
