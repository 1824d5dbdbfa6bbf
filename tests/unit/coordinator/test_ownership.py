"""Which queues a coordinator takes, gives up and tries again, with leases, queues and time as a test wants them."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from coordinator import owned, ownership
from coordinator.ownership import Ownership
from coordinator.setbacks import AFTER_ERROR_MS, AFTER_FENCED_MS
from fleet.config.router import QueueConfig
from fleet.errors import Fenced, FleetError, SourceUnavailable, StateUnavailable
from fleet.lease import HeldBy
from tests.acceptance.intake import SourceWithoutGroups
from tests.clocks import HandClock
from tests.unit.coordinator.standins import Alarms

TTL_MS = 10_000
US, OTHER = "coordinator-1", "coordinator-2"


class Lease:
    """Of a queue that is free, unless a test says who has it."""

    ageing = False
    was_released = True

    def __init__(self) -> None:
        self.epoch, self.above, self.held = "", "0", False
        self.held_by: HeldBy | None = None
        self.taken_by: HeldBy | None = None
        self.fails = False
        self.go = asyncio.Event()
        self.go.set()
        self.released = 0

    async def acquire(self) -> bool:
        await self.go.wait()
        if self.fails:
            raise StateUnavailable("Redis does not answer")
        self.held_by = self.taken_by
        self.epoch, self.held = "7", self.taken_by is None
        return self.held

    async def release(self) -> None:
        self.released += 1
        self.held = False

    def drop(self) -> None:
        self.held = False


class Duties:
    """Those of a queue that we work on until we are stopped, or until `fails`."""

    in_disorder = False
    ms_since_poll = None

    def __init__(self, world: World, config: QueueConfig) -> None:
        self._world, self._name = world, config.name
        self._stop = asyncio.Event()
        self.drained = config.name in world.drained
        self.stuck = False

    async def run(self) -> None:
        self._world.began[self._name] += 1
        if (error := self._world.fails.get(self._name)) is not None:
            raise error
        if not self.drained:
            await self._stop.wait()

    def stop(self) -> None:
        if self._name not in self._world.deaf:
            self._stop.set()

    def is_stuck(self) -> bool:
        return self.stuck

    async def return_all(self) -> None:
        self._world.returned.append(self._name)


class Registry:
    """Which queues were owned before, and which processes live."""

    def __init__(self) -> None:
        self.known: dict[str, bytes] = {}
        self.forgotten: list[str] = []
        self.living = {US}

    async def queues(self) -> dict[str, bytes]:
        return self.known

    async def remember_queue(self, name: str, body: bytes) -> None:
        self.known[name] = body

    async def forget_queue(self, name: str) -> None:
        self.forgotten.append(name)
        self.known.pop(name, None)

    async def alive(self) -> set[str]:
        return self.living


class World:
    def __init__(self, *names: str) -> None:
        self.clock, self.alarms, self.registry = HandClock(), Alarms(), Registry()
        self.configured = {name: config(name) for name in names}
        self.directory = SimpleNamespace(revision="1", queues=lambda: dict(self.configured))
        self.leases: defaultdict[str, Lease] = defaultdict(Lease)
        self.began: Counter[str] = Counter()
        self.unopened: dict[str, FleetError] = {}
        self.fails: dict[str, FleetError] = {}
        self.drained: set[str] = set()
        self.deaf: set[str] = set()
        """Those whose work does not end when it is told to."""
        self.returned: list[str] = []
        self.let_go = 0
        self.ownership = self._ownership(enabled=True)

    def _ownership(self, *, enabled: bool) -> Ownership:
        parts = SimpleNamespace(
            name=US,
            client=None,
            registry=self.registry,
            directory=self.directory,
            alarms=self.alarms,
            clock=self.clock,
        )
        found = Ownership(
            parts=cast(Any, parts),
            ttl_ms=TTL_MS,
            enabled=enabled,
            on_crash=lambda task: None if task.cancelled() else task.result(),
            open_source=cast(Any, self._open),
        )
        found.on_let_go = self._on_let_go
        return found

    def switch_off(self) -> None:
        self.ownership = self._ownership(enabled=False)

    def _on_let_go(self) -> None:
        self.let_go += 1

    def _open(self, name: str, *_: object, **__: object) -> SourceWithoutGroups:
        return Unopened(self.unopened[name]) if name in self.unopened else SourceWithoutGroups()

    async def share_out(self, *others: str) -> tuple[list[str], float]:
        """What is owned then, and when the next lease of another lapses."""
        lapses_ms = await self.ownership.share_out({US, *others})
        await asyncio.sleep(1)
        return sorted(self.ownership.owned), lapses_ms

    def duties(self, name: str) -> Duties:
        return cast(Duties, self.ownership.owned[name].duties)


class LeftInRedis:
    """Something of each queue is still to be acknowledged."""

    def __init__(self, *_: object) -> None: ...

    async def tracked_count(self) -> int:
        return 1

    async def settled_count(self) -> int:
        return 0


class Unopened(SourceWithoutGroups):
    def __init__(self, error: FleetError) -> None:
        super().__init__()
        self._error = error

    async def open(self) -> None:
        raise self._error


def config(name: str, **more: Any) -> QueueConfig:
    return QueueConfig(name=name, uri=f"held://{name}", **more)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Of the queues a, b, c and d."""
    world = World("a", "b", "c", "d")
    monkeypatch.setattr(ownership, "Lease", lambda *, key, **_: world.leases[key])
    monkeypatch.setattr(ownership, "QueueKeys", lambda name: SimpleNamespace(owner=name))
    monkeypatch.setattr(owned, "Duties", lambda *, config, **_: Duties(world, config))
    monkeypatch.setattr(owned, "Queue", LeftInRedis)
    yield world
    await world.ownership.stop()
    assert world.ownership.owned == {}


async def test_without_a_configuration_or_switched_off_nothing_is_taken(world: World) -> None:
    world.directory.revision = ""
    world.registry.known = {"old": msgspec.json.encode(config("old"))}
    assert await world.share_out() == ([], math.inf)
    world.directory.revision = "1"
    world.switch_off()
    assert await world.share_out() == ([], math.inf)


async def test_it_takes_its_share_of_what_is_free_and_says_when_the_next_lapses(world: World) -> None:
    world.leases["a"].taken_by = HeldBy(OTHER, "9", 3000)
    world.leases["b"].taken_by = HeldBy(OTHER, "9", 4000)
    assert await world.share_out(OTHER) == (["c", "d"], 3000)
    assert await world.share_out(OTHER, "worker-1", "standby-1") == (["c", "d"], math.inf), "it wants no more"


async def test_no_more_than_the_share_is_taken(world: World) -> None:
    assert (await world.share_out(OTHER))[0] == ["a", "b"]


async def test_a_queue_whose_node_is_away_costs_no_other(world: World) -> None:
    world.leases["a"].fails = True
    assert await world.share_out() == (["b", "c", "d"], math.inf)


async def test_a_surplus_goes_after_a_while_and_no_sooner(world: World) -> None:
    await world.share_out()
    assert (await world.share_out(OTHER))[0] == ["a", "b", "c", "d"]
    world.clock.now_ms += TTL_MS // 2 + 1
    assert (await world.share_out(OTHER))[0] == ["a", "b"]
    assert (world.leases["c"].released, world.let_go) == (1, 2)
    assert world.returned == [], "another reads on"


async def test_a_queue_that_is_gone_or_changed_is_stopped_and_begun_anew_if_it_is_still_there(world: World) -> None:
    await world.share_out()
    world.configured = {"a": config("a"), "b": config("b", connections=2)}
    assert (await world.share_out())[0] == ["a"], "what it was before ends first"
    assert set(world.registry.known) == {"a", "b", "c", "d"}
    world.drained = {"c", "d"}
    assert (await world.share_out())[0] == ["a", "b"]
    assert world.began == {"a": 1, "b": 2, "c": 2, "d": 2}
    assert sorted(world.registry.forgotten) == ["c", "d"]


async def test_a_queue_that_does_not_open_is_one_warning_and_tried_again_later(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.unopened["a"] = SourceUnavailable("it is away")
    assert (await world.share_out())[0] == ["b", "c", "d"]
    assert world.alarms.raised == {"QUEUE_UNAVAILABLE": 1}
    await world.share_out()
    assert world.alarms.raised == {"QUEUE_UNAVAILABLE": 1}, "not at once"
    world.clock.now_ms += AFTER_ERROR_MS
    await world.share_out()
    assert world.alarms.raised == {"QUEUE_UNAVAILABLE": 2}
    assert [record.getMessage() for record in caplog.records] == ["queue a: it is away"]
    del world.unopened["a"]
    world.clock.now_ms += 2 * AFTER_ERROR_MS
    assert (await world.share_out())[0] == ["a", "b", "c", "d"]
    world.unopened["a"] = SourceUnavailable("it is away")
    world.duties("a").stop()
    await asyncio.sleep(1)
    await world.share_out()
    world.clock.now_ms += AFTER_ERROR_MS
    await world.share_out()
    assert world.alarms.raised == {"QUEUE_UNAVAILABLE": 4}, "once it had opened it is tried again as soon as at first"


async def test_without_redis_no_queue_is_said_to_be_unavailable(world: World) -> None:
    world.fails["a"] = StateUnavailable("Redis does not answer")
    assert (await world.share_out())[0] == ["b", "c", "d"]
    assert world.alarms.raised == {}
    assert not world.ownership.lost["queue_leases_lost"]


async def test_who_is_fenced_by_an_owner_of_before_is_granted_an_epoch_above_it_soon(world: World) -> None:
    world.fails["a"] = Fenced("pool P knows a newer owner", epoch="100")
    assert (await world.share_out())[0] == ["b", "c", "d"]
    assert (world.leases["a"].above, world.alarms.raised) == ("100", {})
    await world.share_out()
    assert world.began["a"] == 1
    world.fails["a"] = Fenced("pool P knows a newer owner", epoch="9")
    world.clock.now_ms += AFTER_FENCED_MS
    await world.share_out()
    assert (world.began["a"], world.leases["a"].above) == (2, "100"), "the higher one counts, as a number"


async def test_a_lease_that_lapsed_is_counted_as_lost_and_taken_again_at_once(world: World) -> None:
    await world.share_out()
    world.leases["a"].held = False
    world.duties("a").stop()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert world.ownership.lost["queue_leases_lost"] == 1
    assert (await world.share_out())[0] == ["a", "b", "c", "d"]


async def test_a_stuck_consumer_is_restarted_with_a_warning_once(world: World) -> None:
    await world.share_out()
    world.deaf, world.duties("a").stuck = {"a"}, True
    assert world.ownership.consumers()["stuck"] == ["a"]
    for _ in range(2):
        world.ownership.restart_stuck()
    assert world.alarms.raised == {"CONSUMER_RESTART": 1}
    await asyncio.sleep(20)
    assert "a" not in world.ownership.owned, "one that does not stop is abandoned"
    assert (await world.share_out())[0] == ["a", "b", "c", "d"]
    world.deaf = set()


@pytest.mark.parametrize(
    ("read_by_another", "warning"), [(False, "CONSUMER_RESTART_FAILED"), (True, "QUEUE_UNAVAILABLE")]
)
async def test_a_restart_that_fails_is_critical_unless_another_read_the_queue_since(
    world: World, read_by_another: bool, warning: str
) -> None:
    await world.share_out()
    world.duties("a").stuck = True
    world.ownership.restart_stuck()
    await asyncio.sleep(1)
    world.alarms.raised.clear()
    if read_by_another:
        world.leases["a"].taken_by = HeldBy(OTHER, "9", 4000)
        await world.share_out()
        world.leases["a"].taken_by = None
    world.unopened["a"] = SourceUnavailable("it is away")
    await world.share_out()
    assert world.alarms.raised == {warning: 1}


@pytest.mark.parametrize(("others", "returned"), [((), ["a", "b", "c", "d"]), ((OTHER,), []), (("worker-1",), None)])
async def test_the_last_coordinator_that_stops_returns_what_waits_in_the_pools(
    world: World, others: tuple[str, ...], returned: list[str] | None
) -> None:
    await world.share_out()
    world.registry.living = {US, *others}
    await world.ownership.stop()
    assert sorted(world.returned) == (["a", "b", "c", "d"] if returned is None else returned)


async def test_who_stops_while_a_lease_is_granted_gives_it_back_and_begins_nothing(world: World) -> None:
    world.leases["a"].go.clear()
    sharing = asyncio.create_task(world.share_out())
    await asyncio.sleep(1)
    await world.ownership.stop()
    world.leases["a"].go.set()
    assert await sharing == ([], math.inf)
    assert (world.leases["a"].released, world.began) == (1, {})


async def test_what_does_not_stop_in_time_is_left_behind(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.share_out()
    world.deaf = {"b", "c"}
    await world.ownership.stop()
    assert "left behind, as they do not stop: b, c" in caplog.text
    assert world.ownership.owned == {}
