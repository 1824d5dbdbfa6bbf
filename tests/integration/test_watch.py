"""Seed 000, sections 15 to 18: what is looked after for the whole fleet, how often, and when not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from coordinator import main
from coordinator.directory import Directory
from coordinator.ownership import Ownership
from coordinator.syncer.publish import RevisionPublisher
from coordinator.watch import WATCH_EVERY_S, Watch
from fleet.alarms import Alarms
from fleet.config.router import parse_router_config
from fleet.config.settings import LeaseSettings, RedisSettings, Settings
from fleet.lease import Lease
from fleet.state.by_hand import PoolByHand
from fleet.state.connect import Client, connected
from fleet.state.keys import PoolKeys, QueueKeys
from fleet.state.queue import Queue
from fleet.state.registry import Registry
from fleet.state.warnings import Warnings
from tests.clocks import HandClock
from tests.servers.local import RedisServer
from tests.waiting import eventually

LEAK = ("PIPELINE_MAP_LEAK", "WARN")


class World:
    """A leader's watch, whose rounds a test makes itself."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.clock = HandClock()
        self.alarms = Alarms(warnings=Warnings(client), source="coordinator")
        self.directory = Directory(registry=Registry(client), look_every_s=60, on_change=lambda: None)
        self.leads = True
        self.watch = Watch(
            client=client, directory=self.directory, leads=lambda: self.leads, alarms=self.alarms, clock=self.clock
        )
        self._publisher = RevisionPublisher(client=client)

    async def configure(self, **concurrencies: int) -> None:
        document = {
            "queues": [{"queueName": "q", "queueUri": "held://q"}],
            "processingPools": [{"code": code, "concurrency": n} for code, n in concurrencies.items()],
        }
        await self._publisher.publish(parse_router_config(json.dumps(document).encode()))
        await self.directory.refresh()

    async def track(self, count: int) -> None:
        """As many messages in all that stand in no pool."""
        owner = Lease(client=self.client, key=QueueKeys("q").owner, owner="us", ttl_ms=60_000, clock=self.clock)
        assert await owner.acquire()
        queue = Queue(self.client, "q", epoch=owner.epoch)
        await queue.track([(f"b{i}", f"m{i}", "P", "g", "h") for i in range(count)])

    async def round(self, after_s: float = 0.0) -> dict[tuple[str, str], int]:
        """Warnings so far, each with how often it was raised."""
        self.clock.now_ms += round(after_s * 1000)
        await self.watch.round()
        await self.alarms.flush()
        return {(w.category, w.severity): w.count for w in await Warnings(self.client).list()}

    async def pools(self) -> set[str]:
        return await Registry(self.client).pools()


@pytest.fixture
async def world(redis_server: RedisServer) -> AsyncIterator[World]:
    async with connected(redis_server.url) as client:
        yield World(client)


async def test_more_tracked_than_the_pools_can_hold_is_a_leak_and_no_less(world: World) -> None:
    await world.configure(**{"P": 5, "DEFAULT-POOL": 1})
    await world.track(150)
    assert await world.round() == {}, "100 and 50 is what the two hold"
    await world.track(151)
    assert await world.round(30) == {LEAK: 1}


async def test_a_capacity_that_an_operator_raised_counts(world: World) -> None:
    await world.configure(**{"P": 5, "DEFAULT-POOL": 1})
    await PoolByHand(world.client, "P").adjust(concurrency=10)
    await world.track(250)
    assert await world.round() == {}
    await world.track(251)
    assert await world.round(30) == {LEAK: 1}


async def test_fifty_are_never_a_leak(world: World) -> None:
    await world.configure(**{"DEFAULT-POOL": 1})
    await world.client.hset(PoolKeys("DEFAULT-POOL").settings, "capacity", "10")
    await world.track(50)
    assert await world.round() == {}
    await world.track(51)
    assert await world.round(30) == {LEAK: 1}


async def test_leaks_are_looked_for_every_half_minute_and_drained_pools_removed_every_second(world: World) -> None:
    assert WATCH_EVERY_S <= 10, "the seed's interval for what is drained"
    await world.configure(**{"P": 5, "GONE": 1, "DEFAULT-POOL": 1})
    assert await world.round() == {}
    await world.track(151)
    await world.configure(**{"P": 5, "DEFAULT-POOL": 1})
    assert await world.round(WATCH_EVERY_S) == {}
    assert await world.pools() == {"P", "DEFAULT-POOL"}
    assert await world.round(28.9) == {}
    assert await world.round(0.1) == {LEAK: 1}
    assert await world.round(29.9) == {LEAK: 1}
    assert await world.round(0.1) == {LEAK: 2}, "the same warning again is counted"


async def test_nothing_is_looked_after_before_a_configuration_or_by_who_does_not_lead(world: World) -> None:
    await world.track(400)
    await Registry(world.client).add_pools({"LEFT-OVER"})
    assert await world.round(30) == {}
    assert await world.pools() == {"LEFT-OVER"}
    world.leads = False
    await world.configure(**{"P": 5, "DEFAULT-POOL": 1})
    assert await world.round(30) == {}
    assert "LEFT-OVER" in await world.pools()
    world.leads = True
    assert await world.round(30) == {LEAK: 1}
    assert "LEFT-OVER" not in await world.pools()


async def test_once_told_to_stop_nothing_begins_and_what_has_begun_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.configure(**{"P": 5, "DEFAULT-POOL": 1})
    await world.track(151)
    begun, go, done = asyncio.Event(), asyncio.Event(), []
    look = Registry.memory_share

    async def slow(registry: Registry) -> float:
        begun.set()
        await go.wait()
        done.append(1)
        return await look(registry)

    monkeypatch.setattr(Registry, "memory_share", slow)
    running = asyncio.create_task(world.watch.run())
    await begun.wait()
    stopping = asyncio.create_task(world.watch.stop())
    await asyncio.sleep(0)
    assert not stopping.done(), "it left what had begun"
    go.set()
    await stopping
    assert done == [1]
    await running
    await world.alarms.flush()
    raised = await Warnings(world.client).list()
    assert await world.round(30) == {(w.category, w.severity): w.count for w in raised}
    assert done == [1], "a round began after the stop"


async def test_a_coordinator_that_ends_stops_what_is_scheduled_before_it_lets_go_of_its_queues(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is set for a whole process stays out of this one.
    monkeypatch.setattr(main, "tame_collector", lambda: None)
    monkeypatch.setattr(main, "SWITCH_S", sys.getswitchinterval())
    order: list[str] = []

    def noting(kind: type[Any]) -> None:
        stop = kind.stop

        async def noted(self: Any) -> None:
            order.append(f"{kind.__name__} stops")
            await stop(self)
            order.append(f"{kind.__name__} has stopped")

        monkeypatch.setattr(kind, "stop", noted)

    noting(Watch)
    noting(Ownership)
    settings = Settings(redis=RedisSettings(url=redis_server.url), lease=LeaseSettings(ttl_ms=2000))
    serving = asyncio.create_task(main.serve(settings))
    async with connected(redis_server.url) as client:
        await eventually(lambda: _leads(client))
        os.kill(os.getpid(), signal.SIGTERM)
        assert await serving == 0
    assert order == ["Watch stops", "Watch has stopped", "Ownership stops", "Ownership has stopped"]


async def _leads(client: Client) -> bool:
    return any(record.get("leader") for record in await Registry(client).processes())


async def test_what_a_failover_brought_back_into_the_outbox_of_a_living_worker_is_copied(world: World) -> None:
    """The worker trimmed it: to the worker it is done with, and its queue was never told, or forgot."""
    await world.configure(**{"P": 5, "DEFAULT-POOL": 1})
    await world.track(2)
    (one, two) = await Queue(world.client, "q").tracked(["b0", "b1"])
    assert one is not None
    assert two is not None
    await Registry(world.client).beat("w", {}, ttl_ms=60_000)
    outbox = PoolKeys("P").outbox("w")
    await world.client.sadd(PoolKeys("P").outboxes, "w")
    await world.client.hset(outbox, "7", f"q\x1fb0\x1f{one.token}\x1fa")
    await world.round()
    await world.client.hset(outbox, "8", f"q\x1fb1\x1f{two.token}\x1fa")
    assert await Queue(world.client, "q").settled_count() == 0, "it may be on its way there"
    for _ in range(31):
        await world.round(1)
    assert await Queue(world.client, "q").settled_count() == 1
    assert await world.client.hkeys(outbox) == ["8"]
