"""What the leader takes for trouble, and when Redis is too full to take anything in."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.watch import Watch, capacity_of, standing_still
from fleet.config.router import MIN_CAPACITY
from fleet.state.observe import PoolView
from fleet.state.pool import PoolSettings
from fleet.state.registry import NEARLY_FULL, Registry
from tests.clocks import HandClock


def pool(
    code: str,
    *,
    held: int = 0,
    leases: int = 0,
    ready: int = 0,
    paused: bool = False,
    capacity: int = 100,
    rate: int | None = None,
) -> PoolView:
    return PoolView(code, PoolSettings(5, capacity, rate), paused, held, leases, ready, later=0)


def test_the_pools_hold_their_capacity_or_what_they_hold_already_and_fifty_at_least() -> None:
    assert capacity_of([pool("A", capacity=100), pool("B", capacity=60, held=75)]) == 175
    assert capacity_of([pool("A", capacity=10)]) == MIN_CAPACITY


def test_a_pool_stands_still_that_has_work_and_nobody_at_it() -> None:
    assert standing_still([pool("P", held=3, ready=2)]) == {"P": 3}


@pytest.mark.parametrize(
    "view",
    [
        pool("P", held=3, ready=2, leases=1),
        pool("P", held=3, ready=0),
        pool("P", held=3, ready=2, paused=True),
        pool("P", held=3, ready=2, rate=60),
    ],
    ids=["somebody is at it", "all of it waits for a time", "paused", "waits for permits"],
)
def test_a_pool_does_not_stand_still_that_has_a_reason(view: PoolView) -> None:
    assert standing_still([view]) == {}


async def test_redis_is_full_above_nine_tenths_and_the_log_hears_of_each_change_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shares = [0.5, NEARLY_FULL, 0.95, 0.99, 0.6]

    async def memory_share(_: Registry) -> float:
        return shares.pop(0)

    monkeypatch.setattr(Registry, "memory_share", memory_share)
    caplog.set_level(logging.WARNING, "fleet.coordinator")
    watch = Watch(
        client=cast(Any, None),
        directory=cast(Any, SimpleNamespace(revision="")),
        leads=lambda: False,
        alarms=cast(Any, None),
        clock=HandClock(),
    )
    full = []
    while shares:
        await watch.round()
        full.append(watch.memory_full)
    assert full == [False, False, True, True, False]
    assert [record.getMessage().partition(" % full")[0] for record in caplog.records] == ["Redis is 95", "Redis is 60"]
