"""What a pool is asked to take, and what goes back of it and after how long."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import pytest

from coordinator.put_off import PoolLimits, PutOff
from coordinator.route import route
from coordinator.submit import FULL_TOLD_EVERY_S, NO_SUCH_POOL_RETRY_S, SUBMIT_MOST, Portion, Submitter, Untaken
from fleet.errors import Fenced
from fleet.outcome import CASCADE_RETRY_S, MIN_RETRY_S
from fleet.state.entry import Entry
from fleet.state.pool import Submitted
from fleet.state.queue import Tracking
from tests.clocks import HandClock
from tests.unit.coordinator.standins import Alarms, Queue, Source, received


class Pool:
    """Takes what fits into `room`."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.tag = "ok"
        self.cascaded: list[int] = []
        self.behind: dict[int, int] = {}
        self.calls: list[tuple[int, list[str]]] = []

    async def submit(self, queue: str, epoch: str, part: Sequence[Entry], *, call: int, **_: Any) -> Submitted:
        self.calls.append((call, [entry.broker_id for entry in part]))
        accepted = min(self.room, len(part))
        self.room -= accepted
        return Submitted(cast(Any, self.tag), accepted, self.room, frozenset(self.cascaded), self.behind)


class World:
    def __init__(self, room: int) -> None:
        self.pool, self.alarms, self.counts = Pool(room), Alarms(), Counter[str]()
        self.rooms: list[tuple[str, int, int]] = []
        self.submitter = Submitter(
            client=cast(Any, None),
            queue=cast(Any, Queue([])),
            source=Source([]),
            on_room=lambda code, room, taken: self.rooms.append((code, room, taken)),
            put_off=PutOff(lambda _: PoolLimits(50, 1), lambda _: False, HandClock()),
            alarms=cast(Any, self.alarms),
            counts=self.counts,
        )
        self.submitter._pools["P"] = cast(Any, self.pool)

    async def submit(self, count: int) -> dict[str, int]:
        """What was not taken, with the seconds after which each may come again."""
        return seconds(await self.submitter.submit("P", portion(count), "batch"))


def portion(count: int) -> Portion:
    routed, _ = route([received(str(i)) for i in range(count)], lambda code: code)
    return [(r, Tracking("new", "1")) for r in routed]


def seconds(untaken: Untaken) -> dict[str, int]:
    return {r.received.broker_id: after_s for r, _, after_s in untaken}


async def test_what_fits_is_taken_and_the_pool_s_room_is_noted() -> None:
    world = World(room=10)
    assert await world.submit(3) == {}
    assert world.pool.calls == [(0, ["0", "1", "2"])]
    assert world.rooms == [("P", 7, 3)]


async def test_everything_behind_the_first_refusal_goes_back_and_no_further_call_is_made() -> None:
    world = World(room=SUBMIT_MOST - 1)
    untaken = await world.submit(2 * SUBMIT_MOST)
    assert list(untaken) == [str(i) for i in range(SUBMIT_MOST - 1, 2 * SUBMIT_MOST)]
    assert set(untaken.values()) == {MIN_RETRY_S}
    assert len(world.pool.calls) == 1
    assert (world.counts["refused"], world.alarms.raised["QUEUE_FULL"]) == (SUBMIT_MOST + 1, 1)


async def test_a_long_portion_goes_in_several_calls() -> None:
    world = World(room=10 * SUBMIT_MOST)
    assert await world.submit(SUBMIT_MOST + 1) == {}
    assert [len(ids) for _, ids in world.pool.calls] == [SUBMIT_MOST, 1]


async def test_what_is_behind_others_comes_again_when_those_are_back_by_whole_seconds() -> None:
    world = World(room=10)
    world.pool.cascaded, world.pool.behind = [0], {2: 1_200}
    assert await world.submit(3) == {"0": CASCADE_RETRY_S, "2": 2}


async def test_a_pool_that_redis_does_not_know_yet_is_asked_again_soon() -> None:
    world = World(room=0)
    world.pool.tag = "unknown"
    assert await world.submit(2) == {"0": NO_SUCH_POOL_RETRY_S, "1": NO_SUCH_POOL_RETRY_S}


async def test_a_newer_owner_ends_it() -> None:
    world = World(room=10)
    world.pool.tag = "stale"
    with pytest.raises(Fenced, match="queue q has another owner"):
        await world.submit(1)


async def test_after_a_call_was_given_up_the_next_ones_carry_a_higher_number() -> None:
    world = World(room=10)
    assert world.submitter.give_up("P") == 1
    await world.submit(1)
    assert world.pool.calls == [(1, ["0"])]


async def test_that_a_pool_is_full_is_logged_at_once_and_then_now_and_then(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("coordinator.submit.time.monotonic", lambda: now_s)
    world = World(room=0)
    with caplog.at_level(logging.WARNING):
        await world.submit(2)
        await world.submit(3)
        now_s += FULL_TOLD_EVERY_S
        await world.submit(1)
    assert [record.getMessage().split(" go back")[0] for record in caplog.records] == [
        "pool P is full: 2 messages of q",
        "pool P is full: 4 messages of q",
    ]
