"""Receives that wait: nobody is forgotten, and what was taken for somebody reaches him."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from fleet.broker.sqs.wait import MOST_AT_ONCE, Receiving
from fleet.errors import StateUnavailable
from fleet.state.engine import Showing, Stale, Taking
from tests.waiting import eventually

NOTHING = Taking((), None)
SOON_S = 2.0
"""Far less than the time after which it looks without a signal."""


def showing(number: int, group: str = "") -> Showing:
    return Showing(str(number), group, 1, 0, "", "t")


def showings(*numbers: int) -> Taking:
    return Taking([showing(number) for number in numbers], None)


class Script:
    """What a queue answers, call by call; nothing once that is over."""

    def __init__(self, *answers: Taking | Exception) -> None:
        self.answers = list(answers)
        self.calls = 0
        self.most = 0
        self.back: list[Showing] = []

    async def receive(self, partition: int, most: int, visibility_s: int, per_lane: int) -> Taking:
        self.calls += 1
        self.most = max(self.most, most)
        answer = self.answers.pop(0) if self.answers else NOTHING
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def put_back(self, partition: int, showings: Sequence[Showing]) -> None:
        self.back += showings

    def receiving(self, partitions: int = 1) -> Receiving:
        return Receiving(partitions=partitions, ordered=False, receive=self.receive, put_back=self.put_back)


async def ask(
    receiving: Receiving, most: int = 1, wait_s: float = 20, is_gone: Callable[[], bool] = lambda: False
) -> list[str]:
    found = await receiving.ask(most, visibility_s=30, wait_s=wait_s, is_gone=is_gone)
    return [one.number for _, one in found]


async def test_who_is_left_over_is_told_of_what_comes_next() -> None:
    """A call that shows something does not have us told: only one that finds nothing does."""
    script = Script(showings(1))
    receiving = script.receiving()
    one, other = asyncio.create_task(ask(receiving)), asyncio.create_task(ask(receiving))
    async with asyncio.timeout(SOON_S):
        assert await one == ["1"]
        await eventually(lambda: script.calls == 2)
    receiving.end()
    assert await other == []


async def test_what_was_taken_is_given_though_another_partition_cannot_be_asked() -> None:
    receiving = Script(showings(1), StateUnavailable("away")).receiving(partitions=2)
    assert await ask(receiving, most=10) == ["1"]


async def test_one_call_never_shows_more_than_can_be_carried() -> None:
    """What an answer that takes too long has shown is lost for as long as it stays hidden."""
    script = Script(*(showings(*range(first, first + MOST_AT_ONCE)) for first in range(0, 300, MOST_AT_ONCE)))
    receiving = script.receiving()
    async with asyncio.timeout(SOON_S):
        found = await asyncio.gather(*(ask(receiving, most=10) for _ in range(30)))
    assert sorted(int(number) for numbers in found for number in numbers) == list(range(300))
    assert script.most == MOST_AT_ONCE


async def test_who_does_not_wait_is_asked_for_though_one_call_cannot_carry_all() -> None:
    script = Script(showings(*range(MOST_AT_ONCE)), showings(*range(MOST_AT_ONCE, MOST_AT_ONCE + 5)))
    receiving = script.receiving()
    async with asyncio.timeout(SOON_S):
        found = await asyncio.gather(*(ask(receiving, most=10, wait_s=0) for _ in range(MOST_AT_ONCE // 10 + 2)))
    assert [len(one) for one in found] == [10] * (MOST_AT_ONCE // 10) + [5, 0]
    assert script.calls == 2


async def test_who_was_given_nothing_is_told_why() -> None:
    receiving = Script(StateUnavailable("away")).receiving()
    with pytest.raises(StateUnavailable):
        await ask(receiving)
    assert receiving.waiting == 0


async def test_who_has_gone_is_answered_nothing_and_keeps_nothing() -> None:
    """A call that is cancelled would look like a failure of ours."""
    script = Script(NOTHING)
    receiving = script.receiving()
    async with asyncio.timeout(SOON_S):
        assert await ask(receiving, is_gone=lambda: True) == []
    assert receiving.waiting == 0


async def test_who_went_while_he_waited_is_given_nothing_of_what_comes() -> None:
    script = Script(NOTHING, showings(1))
    receiving = script.receiving()
    has_gone = False
    gone = asyncio.create_task(ask(receiving, is_gone=lambda: has_gone))
    await eventually(lambda: script.calls == 1)
    has_gone = True
    there = asyncio.create_task(ask(receiving))
    async with asyncio.timeout(SOON_S):
        assert [await there, await gone] == [["1"], []]


async def test_who_waits_at_a_queue_that_was_forgotten_asks_the_one_that_is_known_now() -> None:
    receiving = Script().receiving()
    waits = asyncio.create_task(ask(receiving))
    await eventually(lambda: receiving.waiting == 1)
    receiving.retire()
    async with asyncio.timeout(SOON_S):
        with pytest.raises(Stale):
            await waits
