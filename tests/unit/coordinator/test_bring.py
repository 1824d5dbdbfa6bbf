"""Which pools a batch goes to at once, which of them are late, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from coordinator.answers import PATIENCE_S, SHORT_PATIENCE_S
from coordinator.bring import Bringer
from coordinator.submit import Portion, Untaken
from fleet.errors import Fenced, StateUnavailable

A, B = cast(Portion, ["for a"]), cast(Portion, ["for b"])


class Pools:
    """What submits to them. Each takes all, or does as the test says."""

    def __init__(self) -> None:
        self.does: dict[str, Callable[[], Any]] = {}
        self.asked: list[str] = []
        self.told: list[str] = []

    async def submit(self, code: str, portion: Portion, batch_id: str) -> Untaken:
        self.asked.append(code)
        found = self.does[code]() if code in self.does else []
        return cast(Untaken, await found if asyncio.isfuture(found) or asyncio.iscoroutine(found) else found)

    def pool(self, code: str) -> Pool:
        return Pool(self, code)


class Pool:
    def __init__(self, pools: Pools, code: str) -> None:
        self._pools, self._code = pools, code

    async def expect_no_more(self, messages: list[Any]) -> None:
        self._pools.told.append(self._code)
        found = self._pools.does.get(self._code, lambda: None)()
        if found is not None:
            await found


class Late(set[str]):
    """The codes of those that are late."""

    def __init__(self) -> None:
        super().__init__()
        self.silent = False
        self.waiting: list[tuple[str, Portion, str]] = []
        self.fallen: dict[str, asyncio.Task[Untaken]] = {}
        self.calls: set[asyncio.Task[None]] = set()

    def wait(self, code: str, portion: Portion, batch_id: str) -> None:
        self.waiting.append((code, portion, batch_id))

    def is_known_silent(self, now_s: float) -> bool:
        return self.silent

    def fell_silent(self, code: str, since_s: float, call: asyncio.Task[Untaken], *_: object) -> None:
        self.fallen[code] = call

    def see_to_the_end(self, calls: set[asyncio.Task[None]]) -> None:
        self.calls |= calls


class World:
    def __init__(self) -> None:
        self.pools, self.late, self.ours = Pools(), Late(), True
        self.bringer = Bringer(submitter=cast(Any, self.pools), late=cast(Any, self.late), ours=lambda: self.ours)

    async def bring(self, **portions: Portion) -> Any:
        return await self.bringer.bring(portions, "batch")

    def hangs(self, code: str) -> asyncio.Future[Untaken]:
        hanging: asyncio.Future[Untaken] = asyncio.get_running_loop().create_future()
        self.pools.does[code] = lambda: hanging
        return hanging


@pytest.fixture
def world() -> World:
    return World()


def fails(error: Exception) -> Callable[[], Any]:
    async def failing() -> Untaken:
        raise error

    return failing


async def test_what_the_pools_did_not_take_comes_back_of_all_of_them(world: World) -> None:
    world.pools.does = {"A": lambda: ["a"], "B": lambda: ["b"]}
    assert await world.bring(A=A, B=B) == ["a", "b"]
    assert world.late.fallen == {}


async def test_what_is_for_a_late_pool_waits_and_nobody_asks_it(world: World) -> None:
    world.late.add("A")
    assert await world.bring(A=A) == []
    assert (world.late.waiting, world.pools.asked) == ([("A", A, "batch")], [])


@pytest.mark.parametrize(("silent", "patience_s"), [(False, PATIENCE_S), (True, SHORT_PATIENCE_S)])
async def test_a_pool_that_does_not_answer_is_late_and_shortly_so_beside_a_silent_one(
    world: World, silent: bool, patience_s: float
) -> None:
    world.hangs("A")
    world.late.silent = silent
    world.pools.does["B"] = lambda: ["b"]
    began_s = asyncio.get_running_loop().time()
    assert await world.bring(A=A, B=B) == ["b"]
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(patience_s)
    assert [(code, call.done()) for code, call in world.late.fallen.items()] == [("A", False)]


async def test_a_pool_that_cannot_be_reached_is_late_and_nothing_of_it_comes_back(world: World) -> None:
    world.pools.does["A"] = fails(StateUnavailable("away"))
    assert await world.bring(A=A, B=B) == []
    assert set(world.late.fallen) == {"A"}


async def test_an_error_of_one_pool_is_raised_once_the_others_that_are_late_are_noted(world: World) -> None:
    world.pools.does = {"A": fails(Fenced("queue q has another owner")), "B": fails(StateUnavailable("away"))}
    with pytest.raises(Fenced, match="another owner"):
        await world.bring(A=A, B=B)
    assert set(world.late.fallen) == {"B"}


async def test_who_has_lost_the_queue_waits_for_its_calls_as_nobody_catches_up_later(world: World) -> None:
    hanging = world.hangs("A")
    world.ours = False
    bringing = asyncio.create_task(world.bring(A=A))
    await asyncio.sleep(10 * PATIENCE_S)
    assert not bringing.done()
    hanging.set_exception(StateUnavailable("away"))
    with pytest.raises(StateUnavailable):
        await bringing
    assert world.late.fallen == {}


async def test_who_is_cancelled_ends_its_calls(world: World) -> None:
    hanging = world.hangs("A")
    bringing = asyncio.create_task(world.bring(A=A))
    await asyncio.sleep(0)
    bringing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bringing
    assert hanging.cancelled()


async def test_pools_are_told_of_acked_copies_but_for_late_ones_and_one_that_is_away_hears_nothing(
    world: World,
) -> None:
    world.late.add("LATE")
    world.pools.does["AWAY"] = fails(StateUnavailable("away"))
    await world.bringer.expect_no_more({"LATE": [], "AWAY": [], "A": []})
    assert sorted(world.pools.told) == ["A", "AWAY"]
    assert world.late.calls == set()


async def test_who_does_not_answer_that_is_left_to_be_seen_to_the_end(world: World) -> None:
    hanging = world.hangs("A")
    await world.bringer.expect_no_more({"A": [], "B": []})
    (call,) = world.late.calls
    assert not call.done()
    hanging.set_result([])
    await call
