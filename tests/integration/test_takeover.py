"""A queue changes hands: which pools its new owner touches, and what an older one can still do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from coordinator.takeover import take_over
from fleet.clock import SystemClock
from fleet.errors import Fenced
from fleet.lease import Lease
from fleet.state.connect import Client, connected
from fleet.state.keys import QueueKeys
from fleet.state.pool import Pool, PoolSettings
from fleet.state.queue import Queue
from tests.integration.owning import HeldSource
from tests.servers.local import RedisServer
from tests.state.stage import entry

CODES = [f"P{number}" for number in range(60)]


@dataclass
class World:
    client: Client

    async def owner(self, name: str) -> Queue:
        lease = Lease(client=self.client, key=QueueKeys("q").owner, owner=name, ttl_ms=600_000, clock=SystemClock())
        await self.client.hset(QueueKeys("q").owner, "deadline", "0")  # as if it had lapsed
        assert await lease.acquire()
        return Queue(self.client, "q", epoch=lease.epoch)

    async def take_over(self, queue: Queue) -> list[str]:
        source = HeldSource()
        await take_over(client=self.client, queue=queue, source=source)
        return source.nacked

    async def touched(self) -> set[str]:
        """Pools with a line of the queue."""
        return {code for code in CODES if await self.client.hexists(Pool(self.client, code).keys.epochs, "q:q")}

    async def submit(self, queue: Queue, code: str, broker_id: str) -> str:
        return (await Pool(self.client, code).submit("q", queue.epoch, [entry(broker_id)])).tag


async def track(queue: Queue, code: str, *broker_ids: str) -> None:
    await queue.track([(broker_id, broker_id, code, "g", "h") for broker_id in broker_ids])


@pytest.fixture
async def world(redis_server: RedisServer) -> AsyncIterator[World]:
    async with connected(redis_server.url) as client:
        for code in CODES:
            await Pool(client, code).configure("1", PoolSettings(10, 100))
        await client.sadd("{fleet}:pools", *CODES)
        yield World(client)


async def test_only_pools_that_hold_something_of_the_queue_are_touched(world: World) -> None:
    old = await world.owner("old")
    for code in ("P3", "P40"):
        await track(old, code, f"of-{code}")
        assert await world.submit(old, code, f"of-{code}") == "ok"
    new = await world.owner("new")
    assert await world.take_over(new) == []
    assert await world.touched() == {"P3", "P40"}
    assert await world.submit(old, "P3", "late") == "stale"


async def test_more_pools_than_are_fenced_at_once_are_all_fenced(world: World) -> None:
    old = await world.owner("old")
    for code in CODES:
        await track(old, code, f"of-{code}")
    new = await world.owner("new")
    assert sorted(await world.take_over(new)) == sorted(f"of-{code}" for code in CODES)
    assert [await world.submit(old, code, f"of-{code}") for code in CODES] == ["stale"] * len(CODES)


async def test_an_owner_that_wakes_between_track_and_submit_is_refused_by_a_pool_that_it_never_fed(
    world: World,
) -> None:
    old = await world.owner("old")
    await track(old, "P7", "m1")
    # Asleep here. Two owners come and go; the second finds nothing of the queue anywhere.
    for name in ("second", "third"):
        owner = await world.owner(name)
        assert await world.take_over(owner) == (["m1"] if name == "second" else [])
    assert await world.submit(old, "P7", "m1") == "stale"
    assert await world.touched() == {"P7"}


async def test_an_older_owner_can_begin_with_no_other_pool(world: World) -> None:
    old = await world.owner("old")
    new = await world.owner("new")
    with pytest.raises(Fenced):
        await track(old, "P9", "m1")
    assert await world.take_over(new) == []


async def test_an_owner_that_is_behind_is_told_so_by_the_first_pool(world: World) -> None:
    old = await world.owner("old")
    await track(old, "P1", "m1")
    new = await world.owner("new")
    await world.take_over(new)
    await track(new, "P1", "m1")
    with pytest.raises(Fenced):
        await take_over(client=world.client, queue=Queue(world.client, "q", epoch=old.epoch), source=HeldSource())


async def test_what_two_owners_in_turn_tracked_and_never_submitted_comes_before_what_is_newer(world: World) -> None:
    """JetStream shows what was given back in the order of that: m3, which the second had not come to, is first."""
    client = world.client
    pool = Pool(client, "P1")
    await pool.configure("2", PoolSettings(10, 100, on_failure="hold"))

    async def submit(owner: Queue, *ids: str) -> dict[int, int]:
        entries = [replace(entry(id_), source_holds_groups=False) for id_ in ids]
        return (await pool.submit("q", owner.epoch, entries)).behind

    async def track_in_order(owner: Queue, *ids: str) -> None:
        await owner.track([(id_, id_, "P1", "g", "h") for id_ in ids], orders=["r"] * len(ids))

    await track_in_order(await world.owner("first"), "m1", "m2", "m3")
    second = await world.owner("second")
    assert await world.take_over(second) == ["m1", "m2", "m3"]
    await track_in_order(second, "m1", "m2")
    third = await world.owner("third")
    assert await world.take_over(third) == ["m1", "m2"]
    assert set(await submit(third, "m3", "m4")) == {0, 1}
    assert await submit(third, "m1", "m2", "m3", "m4") == {}
    assert await client.lrange(pool.keys.regular_lane + "g", 0, -1) == [f"q\x1fm{n}" for n in (1, 2, 3, 4)]


async def test_what_asks_for_no_order_is_waited_for_by_nothing(world: World) -> None:
    await Pool(world.client, "P1").configure("2", PoolSettings(10, 100, on_failure="hold"))
    first = await world.owner("first")
    rows = [(id_, id_, "P1", "g", "h") for id_ in ("of no group", "returns", "held by its source")]
    await first.track(rows, orders=["", "rreturn", ""])
    assert len(await world.take_over(await world.owner("second"))) == 3
    assert await world.client.exists(Pool(world.client, "P1").keys.away) == 0
