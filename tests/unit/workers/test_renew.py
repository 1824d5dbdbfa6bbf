"""Leases are renewed in time, all of a pool by one call, and dropped when their time has come."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from fleet.errors import StateError, StateUnavailable
from fleet.lease import safe_deadline
from tests.clocks import HandClock
from tests.unit.workers.links import EPOCH, Link, lease_on
from workers.lease import LaneLease
from workers.renew import Renewal

TTL_MS = 10_000
TOOK_MS = 700
"""What Redis takes to answer."""


class Scene:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.link = Link()
        self.link.pool.renew = self._renew
        self.asked: list[list[tuple[str, str]]] = []
        self.lost: list[str] = []
        self.error: StateError | None = None
        self.errors: list[StateError | None] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.renewal = Renewal(
            cast(Any, self.link),
            worker="w",
            ttl_ms=TTL_MS,
            clock=self.clock,
            on_state=self.errors.append,
            on_crash=lambda task: task.result(),
        )

    async def _renew(self, worker: str, known: list[tuple[str, str]], *, ttl_ms: int) -> list[str]:
        assert (worker, ttl_ms) == ("w", TTL_MS)
        self.asked.append(known)
        await self.answers.wait()
        self.clock.now_ms += TOOK_MS
        if self.error is not None:
            raise self.error
        return self.lost

    def lease(self, lane: str, left_ms: float) -> LaneLease:
        return lease_on(self.link, lane=lane, deadline_ms=self.clock.boot_ms() + left_ms)

    async def keep(self) -> None:
        self.renewal.keep()
        if self.renewal.task is not None:
            await self.renewal.task


@pytest.mark.parametrize(("left_ms", "asked"), [(8_800, 0), (6_000, 0), (5_999, 1), (1, 1)])
async def test_a_lease_is_renewed_when_less_than_three_fifths_of_its_time_are_left(left_ms: int, asked: int) -> None:
    scene = Scene()
    scene.lease("g", left_ms)
    await scene.keep()
    assert len(scene.asked) == asked


async def test_all_of_a_pool_are_renewed_from_the_moment_before_they_were_asked_for() -> None:
    scene = Scene()
    leases = [scene.lease("old", 5_000), scene.lease("new", 9_000)]
    deadline_ms = safe_deadline(scene.clock.boot_ms(), TTL_MS)
    await scene.keep()
    assert scene.asked == [[("old", EPOCH), ("new", EPOCH)]]
    assert [lease.deadline_ms for lease in leases] == [deadline_ms] * 2


async def test_what_is_lost_is_dropped_and_the_rest_is_kept() -> None:
    scene = Scene()
    lost, kept = scene.lease("lost", 5_000), scene.lease("kept", 5_000)
    scene.lost = ["lost"]
    await scene.keep()
    assert (scene.link.dropped, scene.link.leases) == ([lost], {"kept": kept})


async def test_what_has_lapsed_is_dropped_and_not_asked_for() -> None:
    scene = Scene()
    lapsed = scene.lease("lapsed", 0)
    await scene.keep()
    assert (scene.link.dropped, scene.asked) == ([lapsed], [])
    scene.lease("ageing", 5_000)
    scene.lease("lapsed", -1)
    await scene.keep()
    assert scene.asked == [[("ageing", EPOCH)]]


async def test_an_error_of_redis_drops_nothing_and_prolongs_nothing() -> None:
    scene = Scene()
    lease = scene.lease("g", 5_000)
    before_ms, scene.error = lease.deadline_ms, StateUnavailable("away")
    await scene.keep()
    assert (scene.link.leases, lease.deadline_ms, scene.errors) == ({"g": lease}, before_ms, [scene.error])
    scene.error = None
    await scene.keep()
    assert lease.deadline_ms > before_ms, "it is asked again at once"


async def test_there_is_one_call_at_a_time_and_what_ends_meanwhile_is_none_of_its_business() -> None:
    scene = Scene()
    ended, again, kept = (scene.lease(lane, 5_000) for lane in ("ended", "again", "kept"))
    scene.lost = ["again"]
    scene.answers.clear()
    scene.renewal.keep()
    await asyncio.sleep(0)
    scene.link.release(ended)
    granted, before_ms = scene.lease("again", 9_000), ended.deadline_ms
    scene.renewal.keep()
    scene.answers.set()
    await scene.keep()
    assert (len(scene.asked), scene.link.dropped) == (1, [])
    assert scene.link.leases == {"kept": kept, "again": granted}, "the one that is held now was not lost"
    assert (ended.deadline_ms, again.deadline_ms) == (before_ms, before_ms)
    assert kept.deadline_ms > before_ms
