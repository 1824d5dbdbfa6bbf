"""A pool that does not answer, as a node of a Cluster that hangs: what is for it, and what is for the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from coordinator import phantoms
from coordinator.answers import PATIENCE_S
from coordinator.put_off import PoolLimits
from coordinator.rooms import Rooms
from fleet.clock import SystemClock
from fleet.errors import Disordered, Fenced, StateUnavailable
from fleet.lease import Lease
from fleet.sources.base import Receipt
from fleet.state.connect import Client, connected
from fleet.state.keys import QueueKeys
from fleet.state.pool import Pool, PoolSettings
from fleet.state.queue import Queue, Tracked
from tests.acceptance.intake import SourceWithoutGroups
from tests.clocks import HandClock
from tests.integration.owner import Owner, Silence, owning
from tests.servers.local import RedisServer
from tests.state.stage import drain, in_groups, submit
from tests.waiting import eventually


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[Client]:
    async with connected(redis_server.url) as found:
        for code in ("P", "OTHER"):
            await Pool(found, code).configure("1", PoolSettings(10, 200, on_failure="hold"))
        yield found


@pytest.mark.parametrize("hangs", [False, True], ids=["refuses", "hangs"])
async def test_what_is_for_it_waits_in_its_order_and_nothing_else_does(
    client: Client, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    silence = Silence(monkeypatch, "submit", "fence", "queued", hangs=hangs)
    async with owning(client) as owner, silence.at_most():
        await owner.take(1, 2)
        await owner.take(3)
        await owner.take(8, pool="OTHER")
        assert await drain(Pool(client, "OTHER")) == ["8"]
        silence.over.set()
        await eventually(lambda: "P" not in owner.late)
        await owner.take(4)
        assert await drain(Pool(client, "P")) == ["1", "2", "3", "4"]
        assert owner.source.nacked == {}


async def test_the_next_that_falls_silent_holds_up_its_batch_shortly(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence = Silence(monkeypatch, "submit", "fence", "queued", hangs=True, of=("P", "OTHER"))
    async with owning(client) as owner, silence.at_most():
        loop, took_s = asyncio.get_running_loop(), list[float]()
        for number, pool in enumerate(("P", "OTHER"), start=1):
            began_s = loop.time()
            await owner.take(number, pool=pool)
            took_s.append(loop.time() - began_s)
        silence.over.set()
        assert took_s[0] >= PATIENCE_S > 0.5 > took_s[1]
        await eventually(lambda: "P" not in owner.late and "OTHER" not in owner.late)
        assert [await drain(Pool(client, code)) for code in ("P", "OTHER")] == [["1"], ["2"]]


async def test_what_had_arrived_after_all_is_not_submitted_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., Awaitable[Any]] = Pool.submit
    lost: list[Any] = []

    async def answer_is_lost(pool: Pool, *args: Any, **given: Any) -> Any:
        answer = await real(pool, *args, **given)
        if not lost:
            lost.append(answer)
            raise StateUnavailable
        return answer

    monkeypatch.setattr(Pool, "submit", answer_is_lost)
    async with owning(client) as owner:
        await owner.take(1, 2)
        delivered = await drain(Pool(client, "P"))
        await eventually(lambda: "P" not in owner.late)
        assert (delivered, await drain(Pool(client, "P"))) == (["1", "2"], [])


async def test_a_call_that_was_given_up_and_repeated_is_refused_when_it_arrives_late(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., Awaitable[Any]] = Pool.submit
    late: list[tuple[Any, Any]] = []

    async def on_its_way(pool: Pool, *args: Any, **given: Any) -> Any:
        if not late:
            late.append(((pool, *args), given))
            raise StateUnavailable
        return await real(pool, *args, **given)

    monkeypatch.setattr(Pool, "submit", on_its_way)
    async with owning(client) as owner:
        await owner.take(1)
        await eventually(lambda: "P" not in owner.late)
        assert await drain(Pool(client, "P")) == ["1"]
        ((args, given),) = late
        assert (await real(*args, **given)).tag == "stale"
        await owner.take(2)
        assert await drain(Pool(client, "P")) == ["2"]


async def test_the_patrol_leaves_what_waits_for_it_alone(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node refuses what writes, and answers what reads."""
    monkeypatch.setattr(phantoms, "EVERY_S", 0.05)
    silence = Silence(monkeypatch, "submit", "fence")
    async with owning(client) as owner:
        await owner.take(1)
        patrol = asyncio.create_task(owner.patrol.run())
        await asyncio.sleep(0.3)
        await owner.take(2)
        await asyncio.sleep(0.1)
        assert owner.source.nacked == {}
        silence.over.set()
        await eventually(lambda: "P" not in owner.late)
        assert await drain(Pool(client, "P")) == ["1", "2"]
        owner.over.set()
        await patrol


async def test_an_heir_has_what_an_older_owner_left_for_it_come_first(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence, source = Silence(monkeypatch, "submit", "fence", "queued"), SourceWithoutGroups()
    async with owning(client, "older", source) as older:
        await older.take(1, 2)
    async with owning(client, "heir", source) as heir:
        await heir.take(3)
        silence.over.set()
        await eventually(lambda: "P" not in heir.late)
        assert list(source.nacked) == ["handle-1", "handle-2", "handle-3"], "all of it comes again, in its order"
        assert await drain(Pool(client, "P")) == []
        await heir.take(1, 2, 3)
        assert await drain(Pool(client, "P")) == ["1", "2", "3"]


async def test_a_stop_leaves_no_task_and_no_error_behind(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))
    before = asyncio.all_tasks()
    silence = Silence(monkeypatch, "submit", hangs=True)
    async with owning(client) as owner:
        taking = asyncio.create_task(owner.take(1))
        await asyncio.sleep(0.1)
        owner.over.set()
        await asyncio.sleep(0.1)
        silence.over.set()
        await taking
    assert asyncio.all_tasks() == before
    async with owning(client, "another") as another:
        await another.take(2)
        await Pool(client, "P").fence("q", "9999999999999999")
        with pytest.raises(Fenced):
            await another.take(3)
    assert said == []


@pytest.mark.parametrize("by_groups", [False, True], ids=["by-messages", "by-groups"])
async def test_who_looks_for_room_waits_for_all_silent_pools_together_and_a_second(
    client: Client, monkeypatch: pytest.MonkeyPatch, by_groups: bool
) -> None:
    silent, limits = [f"P{i}" for i in range(5)], {"SLOW": PoolLimits(50, 2)}
    limits |= dict.fromkeys(silent, PoolLimits(160, 2))
    for code, limit in limits.items():
        await Pool(client, code).configure("1", PoolSettings(limit.concurrency, limit.capacity))
    await submit(Pool(client, "SLOW"), in_groups(50, "s"))
    rooms = Rooms(client=client, clock=HandClock(), limits_of=limits.__getitem__, full=lambda: False)
    for code in silent:
        rooms.note(code, 160)
    over = asyncio.Event()
    for name in ("room", "lanes_to_do"):
        real: Callable[..., Awaitable[Any]] = getattr(Pool, name)

        async def call(pool: Pool, *args: Any, _real: Callable[..., Awaitable[Any]] = real) -> Any:
            if pool.code in silent:
                await over.wait()
            return await _real(pool, *args)

        monkeypatch.setattr(Pool, name, call)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    assert await rooms.wait(dict.fromkeys(limits, 1 / 6), 100, by_groups=by_groups) == 0
    assert loop.time() - began_s < 2.9, "a second for the looks, and one for the wait"
    over.set()
    await asyncio.sleep(0.05)


async def test_an_heir_looks_at_what_is_tracked_once_for_all_pools_that_answer_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = [f"P{i}" for i in range(20)]
    for code in codes:
        await Pool(client, code).configure("1", PoolSettings(10, 200, on_failure="hold"))
    silence, source = Silence(monkeypatch, "submit", "fence", "queued", of=codes), SourceWithoutGroups()
    async with owning(client, "older", source) as older:
        for number, code in enumerate(codes):
            await older.take(number, pool=code)
    scans = 0
    real = Queue.all_tracked

    def counted(queue: Queue) -> AsyncIterator[list[Tracked]]:
        nonlocal scans
        scans += 1
        return real(queue)

    async with owning(client, "heir", source) as heir:
        monkeypatch.setattr(Queue, "all_tracked", counted)
        await asyncio.sleep(0.3)
        silence.over.set()
        await eventually(lambda: not any(code in heir.late for code in codes))
        assert len(source.nacked) == len(codes)
        assert 1 <= scans <= 5, "those that were fenced by then, each time"


async def test_an_heir_that_cannot_show_what_was_left_gives_the_queue_up_in_disorder(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On ActiveMQ what a connection was given is out until the broker sees that it is gone."""
    silence, source = Silence(monkeypatch, "submit", "fence", "queued"), SourceWithoutGroups()
    source.crash_wait_ms = 1000
    async with owning(client, "older", source) as older:
        await older.take(1)

    async def unknown(held: Sequence[tuple[Receipt, int]]) -> list[bool]:
        return [False] * len(held)

    monkeypatch.setattr(source, "nack", unknown)
    with pytest.raises(Disordered):
        async with owning(client, "heir", source) as heir:
            silence.over.set()
            await eventually(lambda: "P" not in heir.late)
            await asyncio.sleep(1)


async def test_a_lease_that_is_lost_between_two_looks_at_it_ends_nothing_by_an_error_of_ours(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence = Silence(monkeypatch, "submit", "fence", "queued", hangs=True)
    lease = Lease(client=client, key=QueueKeys("q").owner, owner="us", ttl_ms=60_000, clock=SystemClock())
    assert await lease.acquire()
    owner, looks = Owner(client, lease, SourceWithoutGroups()), iter([True])
    for one in (owner.bringer, owner.late):
        monkeypatch.setattr(one, "_ours", lambda: next(looks, False))
    await owner.take(1)
    assert "P" in owner.late
    silence.over.set()
    await owner.late.run()
