from __future__ import annotations

import asyncio
from functools import partial

import pytest

from coordinator.answers import PATIENCE_S, SHORT_PATIENCE_S, Answers, Question
from fleet.errors import StateUnavailable


class Pools:
    """Those whose `silent` is set answer once that is cleared."""

    def __init__(self) -> None:
        self.silent: dict[str, asyncio.Future[int]] = {}
        self.asked: list[str] = []
        self.slow_s = 0.0

    async def room(self, code: str) -> int:
        self.asked.append(code)
        await asyncio.sleep(self.slow_s)
        if code in self.silent:
            return await self.silent[code]
        return 7

    def questions(self, *codes: str) -> dict[str, Question]:
        return {code: partial(self.room, code) for code in codes}


@pytest.fixture
def pools() -> Pools:
    return Pools()


async def timed(answers: Answers, pools: Pools, *codes: str) -> tuple[dict[str, int], float]:
    began = asyncio.get_running_loop().time()
    found = await answers.to(pools.questions(*codes))
    return found, asyncio.get_running_loop().time() - began


async def test_a_silent_pool_is_waited_for_once_and_then_not_asked_while_it_owes_an_answer(pools: Pools) -> None:
    answers = Answers()
    pools.silent["A"] = asyncio.get_running_loop().create_future()
    assert (await timed(answers, pools, "A", "B"))[0] == {"B": 7}
    found, took_s = await timed(answers, pools, "A", "B")
    assert (found, pools.asked) == ({"B": 7}, ["A", "B", "B"])
    assert took_s < 0.5 * PATIENCE_S
    pools.silent.pop("A").set_result(0)
    await asyncio.sleep(0.01)
    assert (await timed(answers, pools, "A", "B"))[0] == {"A": 0, "B": 7}
    assert (await timed(answers, pools, "A", "B"))[0] == {"A": 7, "B": 7}


async def test_what_was_answered_long_ago_is_asked_again(pools: Pools) -> None:
    answers = Answers()
    pools.silent["A"] = asyncio.get_running_loop().create_future()
    await answers.to(pools.questions("A"))
    pools.silent.pop("A").set_result(0)
    await asyncio.sleep(1.1 * PATIENCE_S)
    assert (await timed(answers, pools, "A"))[0] == {"A": 7}


async def test_pools_that_are_slow_beside_a_silent_one_are_heard_again_and_again(pools: Pools) -> None:
    answers = Answers()
    pools.silent["A"] = asyncio.get_running_loop().create_future()
    await answers.to(pools.questions("A"))
    pools.slow_s = 1.5 * SHORT_PATIENCE_S
    heard = 0
    for _ in range(6):
        heard += "B" in await answers.to(pools.questions("A", "B"))
        await asyncio.sleep(SHORT_PATIENCE_S)
    assert heard >= 2
    pools.silent.pop("A").set_result(0)


async def test_the_next_that_falls_silent_is_waited_for_shortly(pools: Pools) -> None:
    answers = Answers()
    for code in ("A", "B"):
        pools.silent[code] = asyncio.get_running_loop().create_future()
    await answers.to(pools.questions("A"))
    found, took_s = await timed(answers, pools, "B", "C")
    assert found == {"C": 7}
    assert took_s < 0.5 * PATIENCE_S


async def test_one_whose_call_failed_in_the_end_is_asked_again(pools: Pools) -> None:
    answers = Answers()
    pools.silent["A"] = asyncio.get_running_loop().create_future()
    await answers.to(pools.questions("A"))
    pools.silent.pop("A").set_exception(StateUnavailable("no answer"))
    await asyncio.sleep(0)
    assert (await timed(answers, pools, "A"))[0] == {"A": 7}


async def test_one_that_cannot_be_asked_is_no_answer_and_another_error_is_raised() -> None:
    async def away() -> int:
        raise StateUnavailable("away")

    async def broken() -> int:
        raise ValueError("a defect")

    assert await Answers().to({"A": away}) == {}
    with pytest.raises(ValueError, match="a defect"):
        await Answers().to({"A": broken})


async def test_an_answer_that_was_late_waits_for_whoever_asked(pools: Pools) -> None:
    """Another queue, which feeds other pools, looks in between."""
    answers = Answers()
    pools.silent["A"] = asyncio.get_running_loop().create_future()
    await answers.to(pools.questions("A"))
    pools.slow_s = 1.5 * SHORT_PATIENCE_S
    assert await answers.to(pools.questions("A", "B")) == {}
    pools.slow_s = 0.0
    for _ in range(3):
        assert await answers.to(pools.questions("C")) == {"C": 7}
        await asyncio.sleep(0.5 * SHORT_PATIENCE_S)
    assert "B" in await answers.to(pools.questions("A", "B"))
    assert pools.asked.count("B") == 1
    pools.silent.pop("A").set_exception(ValueError("a defect"))
    await asyncio.sleep(0.01)
    assert await answers.to(pools.questions("C")) == {"C": 7}
    with pytest.raises(ValueError, match="a defect"):
        await answers.to(pools.questions("A"))
