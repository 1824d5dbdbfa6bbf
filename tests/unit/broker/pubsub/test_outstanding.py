"""What a stream may still give, by messages and bytes, until it is concluded or its time is over."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from fleet.broker.message import PulledMessage
from fleet.broker.pubsub.outstanding import AT_ONCE, Outstanding
from tests.unit.broker.pubsub.test_messages import pulled


@dataclass
class Time:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


def several(*names: str, size: int = 0) -> list[PulledMessage]:
    return [pulled(name, size) for name in names]


def test_without_limits_there_is_always_room() -> None:
    outstanding = Outstanding()
    with outstanding.budget(messages=0, size=-1, time_s=Time()) as budget:
        budget.put_on([pulled(str(number)) for number in range(1000)], 10)
        assert budget.room == AT_ONCE


def test_room_is_what_the_client_does_not_hold() -> None:
    outstanding = Outstanding()
    with outstanding.budget(messages=3, size=0, time_s=Time()) as budget:
        assert budget.room == 3
        budget.put_on(several("a", "b"), 10)
        assert budget.room == 1
        outstanding.concluded(["ack-a", "ack-unknown", "ack-a"])
        assert budget.room == 2
    with outstanding.budget(messages=2 * AT_ONCE, size=0, time_s=Time()) as budget:
        assert budget.room == AT_ONCE


def test_bytes_stop_it_once_they_are_reached() -> None:
    outstanding = Outstanding()
    with outstanding.budget(messages=0, size=100, time_s=Time()) as budget:
        budget.put_on(several("a", size=90), 10)
        assert budget.room == AT_ONCE
        budget.put_on(several("b", size=90), 10)
        assert budget.room == 0
        outstanding.concluded(["ack-b"])
        assert budget.room == AT_ONCE


def test_each_stream_has_its_own() -> None:
    outstanding, time_s = Outstanding(), Time()
    with (
        outstanding.budget(messages=1, size=0, time_s=time_s) as one,
        outstanding.budget(messages=1, size=0, time_s=time_s) as other,
    ):
        one.put_on(several("a"), 10)
        other.put_on(several("b"), 10)
        outstanding.concluded(["ack-b"])
        assert (one.room, other.room) == (0, 1)
    # A stream that is over holds nothing, and what it gave may still be acked.
    outstanding.concluded(["ack-a"])
    outstanding.extended(["ack-a"], 60)


async def test_what_is_waited_for_is_an_ack() -> None:
    outstanding = Outstanding()
    with outstanding.budget(messages=1, size=0, time_s=asyncio.get_running_loop().time) as budget:
        budget.put_on(several("a"), 600)
        waiting = asyncio.create_task(budget.has_room())
        await asyncio.sleep(0)
        assert not waiting.done()
        outstanding.concluded(["ack-a"])
        assert await waiting == 1


@pytest.mark.parametrize("extended_s", [0, 20])
async def test_a_deadline_that_has_passed_makes_room_unless_it_was_extended(extended_s: int) -> None:
    outstanding, time_s = Outstanding(), Time()
    with outstanding.budget(messages=1, size=0, time_s=time_s) as budget:
        budget.put_on(several("a"), 10)
        if extended_s:
            outstanding.extended(["ack-a"], extended_s)
        time_s.now_s += extended_s or 10
        assert await budget.has_room() == 1
        budget.put_on(several("b"), 10)
        outstanding.extended(["ack-b"], 20)
        time_s.now_s += 19
        assert budget.room == 0


def test_what_was_given_back_may_be_with_another_stream() -> None:
    outstanding = Outstanding()
    with outstanding.budget(messages=1, size=0, time_s=Time()) as other:
        with outstanding.budget(messages=1, size=0, time_s=Time()) as one:
            one.put_on(several("a"), 10)
            other.put_on(several("a"), 10)
        assert other.room == 0
        outstanding.concluded(["ack-a"])
        assert other.room == 1


async def test_a_deadline_that_is_brought_forward_is_waited_for_no_longer_than_that() -> None:
    outstanding = Outstanding()
    with outstanding.budget(messages=1, size=0, time_s=asyncio.get_running_loop().time) as budget:
        budget.put_on(several("a"), 600)
        waiting = asyncio.create_task(budget.has_room())
        await asyncio.sleep(0)
        outstanding.extended(["ack-a"], 0)
        assert await asyncio.wait_for(waiting, 10) == 1
