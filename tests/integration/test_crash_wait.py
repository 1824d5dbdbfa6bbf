"""A queue whose last owner died: its heir waits where more is out than it knows of, and only there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest

from fleet.clock import SystemClock
from fleet.errors import StateFull
from fleet.lease import Lease
from fleet.sources.activemq.address import parse_address
from fleet.sources.activemq.publisher import ActiveMqPublisher
from fleet.sources.activemq.source import ActiveMqSource
from fleet.sources.base import Depth, Outgoing
from fleet.state.connect import connected
from fleet.state.entry import Entry
from fleet.state.keys import QueueKeys
from fleet.state.pool import Pool, PoolSettings
from fleet.state.queue import Queue
from tests.integration.owning import TTL_MS, HeldSource, Owning, an_owner
from tests.servers.activemq import ActiveMqServer
from tests.servers.local import RedisServer
from tests.servers.proxy import proxied
from tests.waiting import eventually

WAIT_MS = 50


class Ungrouped(HeldSource):
    """A source that holds no groups."""

    holds_groups = False
    crash_wait_ms = WAIT_MS


async def leave(url: str, states: Sequence[str]) -> None:
    """An owner dies, and leaves a message in each of these states.

    pooled: in its pool; lost: in none; a, n…: settled, and not applied yet; expired: settled as ack, and applied: its
    handle was none any more.
    """
    async with connected(url) as client:
        lease = Lease(client=client, key=QueueKeys("q").owner, owner="dead", ttl_ms=1, clock=SystemClock())
        await lease.acquire()
        epoch = str(await client.hget(QueueKeys("q").owner, "epoch"))
        pool, queue = Pool(client, "P"), Queue(client, "q", epoch=epoch)
        await pool.configure("1", PoolSettings(concurrency=1, capacity=50))
        names = [f"m{i}-{state}" for i, state in enumerate(states)]
        tracked = await queue.track([(name, name, "P", "g", f"h-{name}") for name in names])
        tokens = {name: one.token for name, one in zip(names, tracked, strict=True)}
        await pool.submit("q", epoch, [_entry(name, tokens[name]) for name in names if name.endswith("pooled")])
        expired = [name for name in names if name.endswith("expired")]
        await queue.report([(name, tokens[name], "a") for name in expired])
        await queue.settled(applied=len(expired), want=0)
        settled = [(name, name.partition("-")[2]) for name in names]
        await queue.report([(name, tokens[name], verdict) for name, verdict in settled if verdict[0] in "an"])


def _entry(name: str, token: str) -> Entry:
    return Entry("q", name, token, "batch", "g", "g", 0, name, "http://127.0.0.1:9/", "", False)


@asynccontextmanager
async def an_heir(url: str, stands: Depth, expired: Sequence[str] = ()) -> AsyncIterator[Owning]:
    async with an_owner(url) as owning:

        def source() -> Ungrouped:
            source = Ungrouped()
            source.stands, source.expired = stands, set(expired)
            return source

        owning.next_source = source
        await owning.configure("q")
        yield owning


@pytest.mark.parametrize(
    ("states", "stands"),
    [
        (["pooled", "pooled"], Depth(0, 2, None)),
        (["lost"], Depth(0, 1, None)),
        (["a", "a"], Depth(0, 0, None)),
        (["n0", "n30000"], Depth(0, 2, None)),
        (["expired"], Depth(1, 0, None)),
        ([], Depth(0, 3, None, delayed=3)),
        ([], Depth(5, 0, None)),
    ],
)
async def test_an_heir_that_knows_of_all_that_is_out_polls_at_once(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture, states: list[str], stands: Depth
) -> None:
    caplog.set_level("INFO", "fleet.coordinator")
    await leave(redis_server.url, states)
    async with an_heir(redis_server.url, stands, ["m0-expired"]) as owning:
        await owning.polls(1)
        assert "its last owner died" not in caplog.text


@pytest.mark.parametrize(
    ("states", "stands"),
    [
        (["pooled"], Depth(0, 2, None)),
        (["expired", "expired"], Depth(0, 1, None)),
        (["a", "pooled"], Depth(0, 2, None)),
        ([], Depth(0, 4, None, delayed=3)),
    ],
)
async def test_an_heir_waits_before_it_polls_where_more_is_out_than_it_knows_of(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture, states: list[str], stands: Depth
) -> None:
    caplog.set_level("INFO", "fleet.coordinator")
    await leave(redis_server.url, states)
    async with an_heir(redis_server.url, stands, ["m0-expired", "m1-expired"]) as owning:
        await eventually(lambda: "its last owner died" in caplog.text)
        assert [source.polls for source in owning.sources] == [0]
        await owning.advance(WAIT_MS / 1000)
        await owning.polls(1)


@pytest.mark.parametrize("how", ["its queue cannot be opened", "Redis is full when it looks"])
async def test_an_heir_that_ends_before_it_knows_leaves_it_to_the_next(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    caplog.set_level("INFO", "fleet.coordinator")
    await leave(redis_server.url, ["pooled"])
    tries = 0

    async def out_count(queue: Queue) -> int:
        raise StateFull("no memory left")

    async with an_owner(redis_server.url) as owning:

        def source() -> HeldSource:
            nonlocal tries
            tries += 1
            made = Ungrouped()
            made.stands = Depth(0, 2, None)
            if tries == 1 and how == "its queue cannot be opened":
                made.cannot_open = "away"
            return made

        if how != "its queue cannot be opened":
            monkeypatch.setattr(Queue, "out_count", out_count)
        owning.next_source = source
        await owning.configure("q")
        await eventually(lambda: "queue q: " in caplog.text)
        monkeypatch.undo()
        await owning.advance(60)
        await eventually(lambda: "its last owner died" in caplog.text)
        assert [source.polls for source in owning.sources] == [0, 0]


async def test_an_heir_of_one_that_ended_well_does_not_wait(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "fleet.coordinator")
    async with connected(redis_server.url) as client:
        lease = Lease(client=client, key=QueueKeys("q").owner, owner="well", ttl_ms=1000, clock=SystemClock())
        await lease.acquire()
        await lease.release()
    async with an_heir(redis_server.url, Depth(0, 9, None)) as owning:
        await owning.polls(1)
        assert "its last owner died" not in caplog.text


async def test_who_loses_its_lease_closes_its_connection_to_activemq_and_another_has_its_messages_at_once(
    redis_server: RedisServer, activemq_server: ActiveMqServer, caplog: pytest.LogCaptureFixture
) -> None:
    queue = "lost-lease"
    with proxied(activemq_server.port) as line:

        def source() -> HeldSource:
            address = parse_address(activemq_server.uri(queue, port=line.port))
            return cast(HeldSource, ActiveMqSource(address=address, visibility_ms=600_000))

        publisher = ActiveMqPublisher(address=parse_address(activemq_server.uri(queue)))
        await publisher.open()
        assert await publisher.publish([Outgoing(f"m{i}", b"no message", "g") for i in range(3)]) == [None] * 3
        async with an_owner(redis_server.url) as owning:
            owning.next_source = source
            owning.rooms.looks = asyncio.Queue()
            await owning.configure("q")
            await eventually(lambda: owning.rooms.waits > 0)
            (mine,) = cast(list[ActiveMqSource], owning.sources)
            assert [one.body for one in await mine.poll(2, 5000)] == [b"no message"] * 2
            assert line.connections > 0
            later = str(int(await owning.client.hget(QueueKeys("q").owner, "epoch")) + 1)
            taken = {"owner": "another", "epoch": later, "deadline": str(2**52)}
            await owning.client.hset(QueueKeys("q").owner, mapping=taken)
            # A third of the lease is over: it renews, and hears that there is none.
            await owning.advance(TTL_MS / 2000)
            await eventually(lambda: "lost the lease on queue q" in caplog.text)
            owning.rooms.looks.put_nowait(None)
            await eventually(lambda: line.connections == 0)
            heir = ActiveMqSource(address=parse_address(activemq_server.uri(queue)), visibility_ms=600_000)
            await heir.open()
            assert len(await heir.poll(3, 5000)) == 3
            await heir.close()
            owning.sources.clear()
        await publisher.close()
