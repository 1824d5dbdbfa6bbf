"""What a round does, in which order, and when the next one comes."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any, cast

import pytest

from coordinator.rounds import ROUNDS, Rounds
from fleet.errors import StateUnavailable

TTL_MS = 600_000
"""No round comes by itself while a test runs."""


class World:
    """A registry, a lead and an ownership that note what is asked of them."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.away = False
        self.shared_among: set[str] = set()
        self.lead_lapses_ms = self.queue_lapses_ms = math.inf
        self.on_let_go: Callable[[], None] = lambda: None
        self.shared_out = asyncio.Event()
        this = cast(Any, self)
        self.rounds = Rounds(
            name="coordinator-1",
            registry=this,
            lead=cast(Any, Leading(self.steps, self)),
            ownership=this,
            ttl_ms=TTL_MS,
            on_crash=_crashed,
        )

    async def alive(self) -> set[str]:
        self.steps.append("alive")
        if self.away:
            raise StateUnavailable
        return {"coordinator-2"}

    def keep(self) -> None:
        self.steps.append("keep queues")

    def restart_stuck(self) -> None:
        self.steps.append("restart stuck")

    async def share_out(self, alive: set[str]) -> float:
        self.steps.append("share out")
        self.shared_among = alive
        self.shared_out.set()
        return self.queue_lapses_ms

    async def stop(self) -> None:
        self.steps.append("stop queues")


class Leading:
    """As much of a `Lead` as rounds ask of it."""

    def __init__(self, steps: list[str], world: World) -> None:
        self._steps = steps
        self._world = world

    async def keep(self) -> float:
        self._steps.append("keep lead")
        return self._world.lead_lapses_ms

    def drop(self) -> None:
        self._steps.append("drop lead")

    async def release(self) -> None:
        self._steps.append("release lead")


def _crashed(task: asyncio.Task[None]) -> None:
    assert task.cancelled() or task.exception() is None


@pytest.fixture
def world() -> World:
    return World()


async def test_a_round_renews_before_it_asks_and_takes_after_it_knows_who_is_alive(world: World) -> None:
    assert await world.rounds.round() == TTL_MS / ROUNDS
    assert world.steps == ["keep queues", "alive", "keep lead", "restart stuck", "share out"]
    assert world.shared_among == {"coordinator-1", "coordinator-2"}, "we live, whoever has heard of it"


async def test_the_next_round_comes_right_after_a_lease_of_another_lapses(world: World) -> None:
    world.lead_lapses_ms = 400
    assert await world.rounds.round() == 405
    world.queue_lapses_ms = 100
    assert await world.rounds.round() == 105
    world.queue_lapses_ms = 0
    assert await world.rounds.round() == 10, "and yet not all the time"


async def test_without_redis_nobody_leads_and_the_log_hears_of_an_outage_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "fleet.coordinator")
    for away in (True, True, False, True):
        world.away = away
        await world.rounds.round()
    assert world.steps.count("drop lead") == 3
    assert len(caplog.records) == 2


async def test_a_queue_that_was_let_go_begins_another_round_at_once(world: World) -> None:
    running = asyncio.create_task(world.rounds.run())
    async with asyncio.timeout(5):
        for _ in range(3):
            world.shared_out.clear()
            world.on_let_go()
            await world.shared_out.wait()
        await world.rounds.stop()
        await running


async def test_at_the_end_the_queues_go_first_and_the_lead_last(world: World) -> None:
    running = asyncio.create_task(world.rounds.run())
    await world.shared_out.wait()
    async with asyncio.timeout(5):
        await world.rounds.stop()
        await running
    assert world.steps[-2:] == ["stop queues", "release lead"]
