"""What is tracked and stands in no pool comes again before what is newer, wherever the one who sees to that ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from coordinator import phantoms
from coordinator.answers import PATIENCE_S
from coordinator.last_stop import return_all
from coordinator.takeover import take_over
from fleet.alarms import Alarms
from fleet.clock import SystemClock
from fleet.errors import Fenced, SourceUnavailable, StateUnavailable
from fleet.lease import Lease
from fleet.sources.base import Receipt, Received
from fleet.state.connect import Client, connected
from fleet.state.keys import QueueKeys
from fleet.state.pool import Pool, PoolSettings
from fleet.state.queue import Queue, Tracked
from fleet.state.warnings import Warnings
from tests.acceptance.intake import SourceWithoutGroups, received
from tests.integration.owner import Owner, Silence, owning
from tests.servers.local import RedisServer
from tests.state.stage import drain
from tests.waiting import eventually


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[Client]:
    async with connected(redis_server.url) as found:
        await Pool(found, "P").configure("1", PoolSettings(10, 200, on_failure="hold"))
        yield found


async def lose(owner: Owner, *numbers: int) -> None:
    """They are tracked, and the pool that they went to forgot them, as a node that failed over may."""
    await owner.take(*numbers)
    for key in [key async for key in owner.client.scan_iter("{p:P}:*")]:
        if not key.endswith((":settings", ":epochs")):
            await owner.client.delete(key)


async def lapse(client: Client) -> None:
    """The lease of whoever owns the queue."""
    await client.hset(QueueKeys("q").owner, "deadline", "0")


async def next_in_order(client: Client, source: SourceWithoutGroups) -> None:
    """Another owner is given what is newer first, and what was lost when its source shows it again."""
    await lapse(client)
    async with owning(client, "next", source) as owner:
        await owner.take(4)
        assert await drain(Pool(client, "P")) == []
        await owner.take(1, 2, 3, 4)
        assert await drain(Pool(client, "P")) == ["1", "2", "3", "4"]


async def fill(client: Client) -> None:
    used = int((await client.info("memory"))["used_memory"])
    await client.config_set("maxmemory", str(used // 2))


async def test_a_patrol_whose_pool_falls_silent_forgets_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phantoms, "EVERY_S", 0.0)
    async with owning(client) as owner:
        await lose(owner, 1, 2, 3)
        await asyncio.sleep(0.01)
        silence = Silence(monkeypatch, "expect")
        with pytest.raises(StateUnavailable):
            await owner.patrol._look_at([one async for page in owner.queue.all_tracked() for one in page])
        silence.over.set()
        assert await owner.queue.tracked_count() == 3
    await next_in_order(client, owner.source)


async def test_an_heir_whose_pool_falls_silent_leaves_all_to_the_next(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SourceWithoutGroups()
    async with owning(client, "older", source) as older:
        await lose(older, 1, 2, 3)
    silence = Silence(monkeypatch, "expect")
    with pytest.raises(StateUnavailable):
        async with owning(client, "heir", source):
            pass
    silence.over.set()
    await next_in_order(client, source)
    assert list(source.nacked) == [received(str(number)).handle for number in (1, 2, 3, 4)]


async def test_a_full_redis_is_taken_over_in_order(client: Client) -> None:
    source = SourceWithoutGroups()
    async with owning(client, "older", source) as older:
        await lose(older, 1, 2, 3)
    await fill(client)
    try:
        async with owning(client, "heir", source):
            assert len(source.nacked) == 3
    finally:
        await client.config_set("maxmemory", "0")
    await next_in_order(client, source)


async def test_what_the_last_coordinator_cannot_show_again_comes_before_what_is_newer(client: Client) -> None:
    class Away(SourceWithoutGroups):
        async def nack(self, held: Sequence[tuple[Receipt, int]]) -> list[bool]:
            raise SourceUnavailable("away")

    async with owning(client, "last", Away()) as owner:
        await owner.take(1, 2, 3)
        alarms = Alarms(warnings=Warnings(client), source="last")
        assert await return_all(client=client, queue=owner.queue, source=owner.source, alarms=alarms) == 0
        assert await owner.queue.tracked_count() == 0
    await next_in_order(client, SourceWithoutGroups())


async def test_an_owner_that_wakes_late_expects_nothing_that_is_over(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SourceWithoutGroups()
    async with owning(client, "older", source) as older:
        await lose(older, 1, 2, 3)
    lease = Lease(client=client, key=QueueKeys("q").owner, owner="slow", ttl_ms=60_000, clock=SystemClock())
    assert await lease.acquire()
    real, asked, goes_on = Pool.expect, asyncio.Event(), asyncio.Event()

    async def expect(pool: Pool, queue: str, epoch: str, messages: Sequence[tuple[str, str, str, str]]) -> bool:
        if epoch == lease.epoch:
            asked.set()
            await goes_on.wait()
        return await real(pool, queue, epoch, messages)

    monkeypatch.setattr(Pool, "expect", expect)
    slow = asyncio.create_task(take_over(client=client, queue=Queue(client, "q", epoch=lease.epoch), source=source))
    async with asyncio.timeout(5):
        await asked.wait()
    await lapse(client)
    async with owning(client, "heir", source) as heir:
        await heir.take(1, 2, 3)
        assert await drain(Pool(client, "P")) == ["1", "2", "3"]
        goes_on.set()
        with pytest.raises(Fenced):
            await slow
        await heir.take(4)
        assert await drain(Pool(client, "P")) == ["4"]


async def test_one_that_is_silent_again_holds_up_the_take_over_of_no_other(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Pool(client, "OTHER").configure("1", PoolSettings(10, 200, on_failure="hold"))
    source, other = SourceWithoutGroups(), Silence(monkeypatch, "submit", "fence", of=("OTHER",))
    silence, again = Silence(monkeypatch, "submit", "fence"), Silence(monkeypatch, "queued")
    again.over.set()
    async with owning(client, "older", source) as older:
        await older.take(1)
        await older.take(2, pool="OTHER")
    async with owning(client, "heir", source) as heir, again.at_most():
        again.over.clear()
        silence.over.set()
        await eventually(lambda: again.met > 0)
        other.over.set()
        await eventually(lambda: "OTHER" not in heir.late)
        assert "P" in heir.late
        again.over.set()
        await eventually(lambda: "P" not in heir.late)
    assert len(source.nacked) == 2


async def test_whoever_was_late_is_not_taken_for_silent_any_more(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Pool(client, "OTHER").configure("1", PoolSettings(10, 200, on_failure="hold"))
    silence, source = Silence(monkeypatch, "submit", "fence", of=("P", "OTHER")), SourceWithoutGroups()
    async with owning(client, "older", source) as older:
        await older.take(1)
        await older.take(2, pool="OTHER")
    async with owning(client, "heir", source) as heir:
        real, failures = Queue.all_tracked, [StateUnavailable("once")]

        async def all_tracked(queue: Queue) -> AsyncIterator[list[Tracked]]:
            if failures:
                await asyncio.sleep(0.05)
                raise failures.pop()
            async for page in real(queue):
                yield page

        monkeypatch.setattr(Queue, "all_tracked", all_tracked)
        silence.over.set()
        await eventually(lambda: not heir.late._waiting)
        assert not failures
        assert heir.late._silent_since_s == {}


async def test_a_copy_for_a_pool_that_hangs_holds_up_no_other(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await Pool(client, "OTHER").configure("1", PoolSettings(10, 200, on_failure="hold"))
    first, copy, other = (received(name, id=id_, poolCode=pool, messageGroupId="g") for name, id_, pool in
                          (("b1", "m1", "P"), ("b2", "m1", "P"), ("b3", "m3", "OTHER")))  # fmt: skip
    silence = Silence(monkeypatch, "expect_no_more", hangs=True)
    async with owning(client) as owner, silence.at_most():
        await owner.admission.admit([first])
        async with asyncio.timeout(2 * PATIENCE_S):
            await owner.admission.admit([copy, other])
        assert await drain(Pool(client, "OTHER")) == ["b3"]


def in_small(**ids: str) -> list[Received]:
    """Of one group, for the pool SMALL: each broker id with its message's."""
    return [received(name, id=id_, poolCode="SMALL", messageGroupId="g") for name, id_ in ids.items()]


async def test_a_copy_that_was_away_holds_its_group_up_no_longer(client: Client) -> None:
    pool = Pool(client, "SMALL")
    await pool.configure("1", PoolSettings(10, 1, on_failure="hold"))
    first, again, copy, newer = in_small(b0="m0", b1="m1", b2="m1", b3="m3")
    async with owning(client) as owner:
        for one in (first, again, copy):
            await owner.admission.admit([one])
        assert list(owner.source.nacked) == [again.handle, copy.handle]
        assert await drain(pool) == ["b0"]
        await owner.admission.admit([again])
        await owner.admission.admit([copy])
        assert owner.source.acked == [copy.handle]
        assert await drain(pool) == ["b1"]
        await owner.admission.admit([newer])
        assert await drain(pool) == ["b3"]


async def test_a_copy_that_comes_before_its_original_takes_its_place(client: Client) -> None:
    pool = Pool(client, "SMALL")
    await pool.configure("1", PoolSettings(10, 1, on_failure="hold"))
    first, original, newer, copy = in_small(b0="m0", b1="m1", b5="m5", b2="m1")
    async with owning(client) as owner:
        for one in (first, original, newer):
            await owner.admission.admit([one])
        await pool.configure("2", PoolSettings(10, 10, on_failure="hold"))
        assert await drain(pool) == ["b0"]
        await owner.admission.admit([copy, original, newer])
        assert owner.source.acked == [original.handle]
        assert await drain(pool) == ["b2", "b5"]


async def test_a_pool_that_falls_silent_as_it_is_taken_over_late_is_taken_over_later(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, silence = SourceWithoutGroups(), Silence(monkeypatch, "submit", "fence")
    again = Silence(monkeypatch, "expect")
    async with owning(client, "older", source) as older:
        await older.take(1, 2)
    async with owning(client, "heir", source) as heir, again.at_most():
        silence.over.set()
        await eventually(lambda: again.met > 0)
        assert (await heir.queue.tracked_count(), source.nacked) == (2, {})
        again.over.set()
        await eventually(lambda: "P" not in heir.late)
        await heir.take(3)
        assert await drain(Pool(client, "P")) == []
        await heir.take(1, 2, 3)
        assert await drain(Pool(client, "P")) == ["1", "2", "3"]
