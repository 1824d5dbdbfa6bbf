"""Which signer the webhooks of a job have."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from fleet.errors import StateUnavailable
from fleet.processing.signers import LOOK_MS, JobSigners
from tests.clocks import HandClock

MARKS = {"DEFAULT-POOL": "0", "MAIN": "a", "P": "b"}


class Pools:
    """In the place of those that are known and of what they sign with: each signs with its own name."""

    marks: Mapping[str, str] = MARKS

    def __init__(self) -> None:
        self.looks = 0
        self.followed: list[Mapping[str, str]] = []
        self.away = False

    async def look(self) -> bool:
        self.looks += 1
        await asyncio.sleep(0)
        if self.away:
            raise StateUnavailable("away")
        return True

    async def follow(self, marks: Mapping[str, str]) -> None:
        self.followed.append(marks)

    def of(self, code: str) -> str:
        return code


class Scene:
    def __init__(self, default_pool: str = "DEFAULT-POOL") -> None:
        self.clock, self.pools = HandClock(), Pools()
        self._signers = JobSigners(
            registry=cast(Any, None), signatures=cast(Any, self.pools), clock=self.clock, default_pool=default_pool
        )
        self._signers._pools = cast(Any, self.pools)

    async def of(self, pool: str) -> Any:
        return await self._signers.of(pool)


@pytest.mark.parametrize(
    ("default_pool", "pool", "signs"),
    [
        ("DEFAULT-POOL", "P", "P"),
        ("DEFAULT-POOL", "UNKNOWN", "DEFAULT-POOL"),
        ("DEFAULT-POOL", "DEFAULT-POOL", "DEFAULT-POOL"),
        ("MAIN", "DEFAULT-POOL", "MAIN"),
        ("MAIN", "UNKNOWN", "DEFAULT-POOL"),
        ("GONE", "DEFAULT-POOL", "DEFAULT-POOL"),
    ],
)
async def test_it_is_that_of_the_pool_which_its_messages_go_through(default_pool: str, pool: str, signs: str) -> None:
    assert await Scene(default_pool).of(pool) == signs


async def test_the_pools_are_looked_at_once_a_second_however_many_ask() -> None:
    scene = Scene()
    await asyncio.gather(*(scene.of("P") for _ in range(5)))
    scene.clock.now_ms += round(LOOK_MS) - 1
    await scene.of("P")
    assert (scene.pools.looks, scene.pools.followed) == (1, [MARKS])
    scene.clock.now_ms += 1
    await scene.of("P")
    assert scene.pools.looks == 2


async def test_where_redis_does_not_say_which_there_are_nothing_is_signed_and_the_next_asks_again() -> None:
    scene = Scene()
    scene.pools.away = True
    for looks in (1, 2):
        with pytest.raises(StateUnavailable):
            await scene.of("P")
        assert scene.pools.looks == looks
    scene.pools.away = False
    assert await scene.of("P") == "P"
