"""One queue of ours: opened, kept, stopped, and let go in the way that its next owner needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import fakeredis
import pytest

from coordinator.owned import Owned
from fleet.config.router import QueueConfig
from fleet.errors import SourceUnavailable, StateUnavailable
from fleet.state.keys import QueueKeys

PATIENCE_S = 15.0
CONFIG = QueueConfig(name="q", uri="held://q")


class Lease:
    epoch = "7"
    ageing = was_released = True

    def __init__(self, journal: list[str]) -> None:
        self._journal = journal
        self.held = self.is_kept = True
        self.fails: Exception | None = None
        self.go = asyncio.Event()
        self.go.set()

    async def renew(self) -> bool:
        self._journal.append("renew")
        await self.go.wait()
        if self.fails is not None:
            raise self.fails
        return self.is_kept

    async def release(self) -> None:
        self._journal.append("release")
        if self.fails is not None:
            raise self.fails

    def drop(self) -> None:
        self._journal.append("drop")


class Source:
    crash_wait_ms = 0

    def __init__(self, journal: list[str]) -> None:
        self._journal = journal
        self.opening: Callable[[], Any] = nothing
        self.closing: Callable[[], Any] = nothing

    async def open(self) -> None:
        self._journal.append("open")
        await self.opening()

    async def close(self) -> None:
        self._journal.append("close")
        await self.closing()


class Registry:
    def __init__(self, journal: list[str]) -> None:
        self._journal = journal
        self.remembered = b""

    async def remember_queue(self, name: str, body: bytes) -> None:
        self._journal.append("remember")
        self.remembered = body

    async def forget_queue(self, name: str) -> None:
        self._journal.append("forget")


class World:
    def __init__(self, config: QueueConfig = CONFIG) -> None:
        self.journal: list[str] = []
        self.lease, self.source, self.registry = Lease(self.journal), Source(self.journal), Registry(self.journal)
        self.client = fakeredis.FakeAsyncRedis(decode_responses=True, server=fakeredis.FakeServer())
        self.owned = Owned(
            parts=cast(Any, SimpleNamespace(registry=self.registry, client=self.client, name="coordinator-1")),
            config=config,
            lease=cast(Any, self.lease),
            open_source=lambda *_, **__: cast(Any, self.source),
            patience_s=PATIENCE_S,
        )

    def works(self, *, in_disorder: bool = False) -> None:
        """As far as whoever stops it or lets it go can tell."""
        self.owned.duties = cast(
            Any, SimpleNamespace(in_disorder=in_disorder, stop=lambda: self.journal.append("stop"))
        )

    async def kept(self) -> list[str]:
        self.journal.clear()
        self.owned.keep(lambda task: task.result())
        await asyncio.sleep(1)
        return self.journal


@pytest.fixture
def world() -> World:
    return World()


async def nothing() -> None: ...


async def hangs() -> None:
    await asyncio.Event().wait()


async def test_a_queue_is_remembered_once_it_has_opened_and_not_as_one_that_drains() -> None:
    world = World(replace(CONFIG, draining=True))
    await world.client.hset(QueueKeys("q").tracked, "b", "something")
    assert await world.owned.open()
    assert world.journal == ["open", "remember"]
    assert b'"draining":false' in world.registry.remembered


@pytest.mark.parametrize("left", ["tracked", "settled"])
async def test_a_queue_that_is_gone_is_opened_only_while_something_of_it_is_left(left: str) -> None:
    world, keys = World(replace(CONFIG, draining=True)), QueueKeys("q")
    assert not await world.owned.open()
    assert world.journal == ["forget"]
    if left == "tracked":
        await world.client.hset(keys.tracked, "b", "something")
    else:
        await world.client.rpush(keys.settled, "an item")
    assert await world.owned.open()


async def test_one_that_does_not_open_is_not_remembered_and_says_how_long_it_was_waited_for(world: World) -> None:
    world.source.opening = hangs
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(SourceUnavailable, match="^queue q did not open within 15 s$"):
        await world.owned.open()
    assert asyncio.get_running_loop().time() - began_s == PATIENCE_S
    assert world.journal == ["open"]


@pytest.mark.parametrize(("in_disorder", "end"), [(False, "release"), (True, "drop")])
async def test_a_lease_lapses_by_itself_where_more_is_out_than_is_known_of(
    world: World, in_disorder: bool, end: str
) -> None:
    await world.owned.open()
    world.works(in_disorder=in_disorder)
    world.journal.clear()
    await world.owned.let_go()
    assert world.journal == ["close", end]


@pytest.mark.parametrize(("was_released", "end"), [(True, "release"), (False, "drop")])
async def test_who_never_came_to_look_leaves_the_queue_as_it_was_found(
    world: World, was_released: bool, end: str
) -> None:
    await world.owned.open()
    world.source.crash_wait_ms, world.lease.was_released = 30_000, was_released
    await world.owned.let_go()
    assert world.journal[-1] == end


async def test_one_that_never_opened_is_released(world: World) -> None:
    await world.owned.let_go()
    assert world.journal == ["release"]


async def test_a_source_that_does_not_close_may_still_hold_messages_so_the_lease_lapses(world: World) -> None:
    world.source.closing = hangs
    await world.owned.open()
    await world.owned.let_go()
    assert world.journal[-2:] == ["close", "drop"]


async def test_a_lease_that_cannot_be_released_is_dropped(world: World) -> None:
    world.lease.fails = StateUnavailable("Redis does not answer")
    await world.owned.let_go()
    assert world.journal == ["release", "drop"]


async def test_a_lease_is_renewed_when_it_ages_and_once_at_a_time(world: World) -> None:
    world.lease.ageing = False
    assert await world.kept() == []
    world.lease.ageing = True
    world.lease.go.clear()
    assert await world.kept() == ["renew"]
    assert await world.kept() == []
    world.lease.go.set()
    await asyncio.sleep(0)
    assert await world.kept() == ["renew"]


async def test_who_has_let_its_lease_go_renews_it_no_more(world: World) -> None:
    world.lease.epoch = ""
    assert await world.kept() == []


async def test_who_loses_its_lease_stops_unless_it_is_ending_already(world: World) -> None:
    world.works()
    world.lease.is_kept = False
    assert await world.kept() == ["renew", "stop"]
    world.owned.closing = True
    assert await world.kept() == ["renew"]


@pytest.mark.parametrize("held", [True, False])
async def test_a_renewal_that_fails_ends_nothing_until_the_lease_is_over(world: World, held: bool) -> None:
    world.works()
    world.lease.fails, world.lease.held = StateUnavailable("Redis does not answer"), held
    assert await world.kept() == ["renew"] + ["stop"] * (not held)


@pytest.mark.parametrize("closing", [False, True])
async def test_who_is_abandoned_is_cancelled_but_not_while_it_lets_go(world: World, closing: bool) -> None:
    world.owned.abandon()  # it has not begun
    world.owned.task = asyncio.create_task(asyncio.sleep(1))
    world.owned.closing = closing
    world.owned.abandon()
    await asyncio.wait([world.owned.task])
    assert world.owned.task.cancelled() is not closing
