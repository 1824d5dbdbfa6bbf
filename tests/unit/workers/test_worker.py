"""What a worker decides for itself: which pools it opens and closes, what it says of itself, how it stops."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fleet.errors import StateUnavailable
from fleet.process import Identity
from tests.clocks import LoopClock
from tests.unit.workers.links import Link, lease_on
from tests.worker_settings import worker_settings
from workers.worker import Worker

STOP_WITHIN_S = 10.0


class Scene:
    """A worker without Redis; its pools and its leases are the test's."""

    def __init__(self, *globs: str) -> None:
        self.worker = Worker(
            identity=Identity.new("worker"),
            client=cast(Any, None),
            http=cast(Any, SimpleNamespace()),
            clock=LoopClock(),
            life=cast(Any, SimpleNamespace(check=lambda task: None)),
            settings=worker_settings("redis://unused", stop_within_s=STOP_WITHIN_S),
            forbids_url=lambda _: False,
            pool_globs=globs or ("*",),
        )
        self.resyncs = self.asks = 0
        vars(self.worker).update(_resync=self._resync)
        vars(self.worker._waking).update(ask_all=self._ask_all)

    def _resync(self) -> None:
        self.resyncs += 1

    def _ask_all(self) -> None:
        self.asks += 1

    def link(self, code: str, *lanes: str) -> Link:
        """A pool that is open, with leases on these lanes."""
        link = Link(code)
        self.worker._links[code] = cast(Any, link)
        for lane in lanes:
            self.worker._on_claimed(lease_on(link, lane=lane, submitted_ms=0))
        return link

    async def known(self, *codes: str) -> None:
        """These pools exist, and it looks."""
        self.worker._pools.marks = dict.fromkeys(codes, "0")
        self.worker._ours = {code: "0" for code in codes if self.worker._serves(code)}
        await self.worker._open_and_close()

    def describes(self, what: str) -> Any:
        return self.worker.describe().get(what)


# Pools ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("globs", "opened"), [(["*"], {"HIGH-1", "LOW-1"}), (["HIGH-*"], {"HIGH-1"}), (["L*", "X?"], {"LOW-1"})]
)
async def test_it_opens_the_pools_that_it_serves(globs: list[str], opened: set[str]) -> None:
    scene = Scene(*globs)
    await scene.known("HIGH-1", "LOW-1")
    assert scene.worker._links.keys() == opened


async def test_a_pool_is_not_opened_before_it_is_known_what_it_signs_with() -> None:
    scene = Scene()
    scene.worker._signatures.unread = {"SIGNED"}
    await scene.known("SIGNED", "PLAIN")
    assert scene.worker._links.keys() == {"PLAIN"}
    scene.worker._signatures.unread = set()
    await scene.known("SIGNED", "PLAIN")
    assert scene.worker._links.keys() == {"SIGNED", "PLAIN"}


async def test_a_pool_that_is_gone_is_closed_once_nothing_of_it_is_held() -> None:
    scene = Scene()
    idle, busy = scene.link("IDLE"), scene.link("BUSY", "g")
    await scene.known()
    assert (idle.closed, busy.closed, scene.worker._look.is_set()) == (True, False, False)
    await asyncio.sleep(1)
    assert scene.worker._look.is_set(), "it is looked at again soon"
    busy.leases.clear()
    await scene.known()
    assert (busy.closed, scene.worker._links) == (True, {})


async def test_who_stops_opens_no_pool() -> None:
    scene = Scene()
    scene.worker._stopping = True
    await scene.known("P")
    assert scene.worker._links == {}


@pytest.mark.parametrize(
    ("message", "looks", "wakes"),
    [
        ("config 7", True, [0, 0]),
        ("pool HELD", False, [1, 0]),
        ("pool IDLE", False, [0, 0]),
        ("pool UNKNOWN", False, [0, 0]),
        ("queue HELD", False, [0, 0]),
    ],
)
async def test_a_change_of_a_pool_is_asked_for_where_leases_go_on_by_its_new_rules(
    message: str, looks: bool, wakes: list[int]
) -> None:
    scene = Scene()
    links = [scene.link("HELD", "g"), scene.link("IDLE")]
    scene.worker._on_changed(message)
    assert (scene.worker._look.is_set(), [link.wakes for link in links]) == (looks, wakes)


# Outages -------------------------------------------------------------------------------------------


async def test_redis_is_back_when_all_of_it_is_and_then_all_that_was_missed_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene, away = Scene(), StateUnavailable("away")
    for code in ("P", "Q", "P"):
        scene.worker._on_state(code, away)
    assert (scene.describes("redisAvailable"), len(caplog.messages)) == (False, 1)
    scene.worker._on_state("P", None)
    assert (scene.describes("redisAvailable"), scene.resyncs, scene.asks) == (False, 0, 0)
    scene.worker._on_state("Q", None)
    scene.worker._on_state("Q", None)
    assert (scene.describes("redisAvailable"), scene.resyncs, scene.asks) == (True, 1, 1)


# What it says of itself ----------------------------------------------------------------------------


async def test_it_names_its_pools_or_what_it_serves_where_they_are_many() -> None:
    scene = Scene("P*")
    for number in range(20):
        scene.link(f"P{number:02}")
    assert scene.describes("pools") == [f"P{number:02}" for number in range(20)]
    scene.link("P20")
    assert scene.describes("pools") == ["P*"]


async def test_others_count_on_it_once_its_pools_are_open() -> None:
    scene = Scene("P*")
    assert scene.describes("globs") is None
    scene.worker._is_open = True
    assert scene.describes("globs") == ("P*",)


async def test_it_tells_what_it_holds_and_of_deliveries_that_take_long() -> None:
    scene = Scene()
    link = scene.link("P", "a", "b")
    scene.link("Q", "c")
    link.leases["a"].attempt, link.leases["a"].transfer = 1, cast(Any, object())
    await asyncio.sleep(3)
    assert scene.describes("inFlight") == 3
    assert [(one["pool"], one["group"]) for one in scene.describes("deliveries")] == [("P", "a")]
    link.leases.clear()
    assert scene.describes("inFlight") == 1
    assert len(scene.worker._holding) == 1, "of ten thousand pools it goes through the few that it holds leases in"


# The end -------------------------------------------------------------------------------------------


async def test_who_stops_gives_back_what_waits_and_finishes_what_is_under_way() -> None:
    scene = Scene()
    link = scene.link("P", "waits", "asks")
    waits, asks = link.leases.values()
    loop = asyncio.get_running_loop()
    waits.retry = loop.call_later(2, pytest.fail, "it was stopped")
    asks.transfer = cast(Any, SimpleNamespace(abort=lambda: pytest.fail("it is finished")))
    loop.call_later(3, link.leases.clear)
    began_s = loop.time()
    await scene.worker._stop()
    assert 3 <= loop.time() - began_s < 3.1
    assert [lease.lane for lease in link.owed] == ["waits"]
    assert link.stopping


async def test_who_stops_waits_no_longer_than_it_may(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.link("P", "a", "b")
    await scene.worker._stop()
    assert asyncio.get_running_loop().time() == pytest.approx(STOP_WITHIN_S)
    assert caplog.messages == ["stopped with 2 deliveries unfinished; what it leased lapses by itself"]
