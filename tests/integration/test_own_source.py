"""Our own queue as a source, on a real Redis: away and back, full, stopped in mid-poll."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from fleet.errors import InvalidConfig, SourceFull, SourceUnavailable
from fleet.sources.base import Outgoing, Publisher, Receipt, Source, Surroundings
from fleet.sources.open import open_publisher, open_source
from fleet.sources.own import look as own_look
from fleet.state.connect import connected
from tests.servers.local import RedisServer, running_redis
from tests.servers.proxy import Proxy, proxied


class World:
    def __init__(self, server: RedisServer, proxy: Proxy, stack: AsyncExitStack) -> None:
        self.server, self.proxy, self._stack = server, proxy, stack
        self._near = Surroundings(redis_url=server.url)
        self._far = Surroundings(redis_url=server.url.replace(f":{server.port}", f":{proxy.port}"))

    async def publisher(self) -> Publisher:
        publisher = open_publisher("fleet://orders", around=self._near)
        await publisher.open()
        self._stack.push_async_callback(publisher.close)
        return publisher

    async def source(self, visibility_ms: int = 60_000, *, through_proxy: bool = False) -> Source:
        around = self._far if through_proxy else self._near
        source = open_source("orders", "fleet://orders", visibility_ms, around=around)
        await source.open()
        self._stack.push_async_callback(source.close)
        return source


@pytest.fixture
async def world(redis_server: RedisServer) -> AsyncIterator[World]:
    with proxied(redis_server.port) as proxy:
        async with AsyncExitStack() as stack:
            yield World(redis_server, proxy, stack)


def messages(count: int) -> list[Outgoing]:
    return [Outgoing(f"{i}", b"%d" % i, f"g{i % 3}") for i in range(count)]


async def test_a_source_whose_line_was_cut_goes_on_when_it_is_mended(world: World) -> None:
    publisher, source = await world.publisher(), await world.source(through_proxy=True)
    await publisher.publish(messages(6))
    (first, *_) = await source.poll(1, 1000)
    world.proxy.cut()
    for _ in range(3):
        with pytest.raises(SourceUnavailable):
            await source.ack([Receipt(first.broker_id, first.handle)])
        with pytest.raises(SourceUnavailable):
            await source.poll(1, 1000)
    world.proxy.mend()
    assert await source.ack([Receipt(first.broker_id, first.handle)]) == [True]
    assert len(await source.poll(10, 1000)) == 5
    # Signals come again as well: what is sent now wakes a poll that waits.
    waiting = asyncio.create_task(source.poll(10, 20_000))
    await asyncio.sleep(0)
    await publisher.publish([Outgoing("late", b"late", "h")])
    async with asyncio.timeout(8):
        assert [one.body for one in await waiting] == [b"late"]


async def test_what_a_cancelled_poll_was_given_is_shown_to_the_next_owner_at_once(world: World) -> None:
    publisher, source = await world.publisher(), await world.source()
    await publisher.publish(messages(4))
    poll = asyncio.create_task(source.poll(10, 0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await poll
    await source.close()
    assert len(await (await world.source()).poll(10, 1000)) == 4


async def test_nothing_is_added_above_nine_tenths_of_the_memory(tmp_path: Path) -> None:
    with running_redis() as server:
        async with AsyncExitStack() as stack:
            publisher = open_publisher("fleet://orders", around=Surroundings(redis_url=server.url))
            await publisher.open()
            stack.push_async_callback(publisher.close)
            await publisher.publish(messages(1))
            with server.client() as client:
                used = client.info("memory")["used_memory"]
                client.config_set("maxmemory", used * 20 // 19)
            full = open_publisher("fleet://orders", around=Surroundings(redis_url=server.url))
            await full.open()
            stack.push_async_callback(full.close)
            with pytest.raises(SourceFull, match="Redis is 9[0-9]% full"):
                await full.publish(messages(1))


async def test_what_cannot_be_sent_is_refused_in_its_place(world: World) -> None:
    publisher = await world.publisher()
    refusals = await publisher.publish(
        [Outgoing("a", b"a"), Outgoing("b", b"b", "g\n"), Outgoing("c", b"c", delay_ms=-1), Outgoing("d", b"d")]
    )
    assert [bool(refusal) for refusal in refusals] == [False, True, True, False]
    assert len(await (await world.source()).poll(10, 1000)) == 2


async def test_a_thousand_large_messages_go_in_calls_that_redis_takes(world: World) -> None:
    publisher, source = await world.publisher(), await world.source()
    await publisher.publish([Outgoing(f"{i}", b"x" * 20_000, f"g{i}") for i in range(1000)])
    taken = 0
    while batch := await source.poll(500, 0):
        assert all(await source.ack([Receipt(one.broker_id, one.handle) for one in batch]))
        taken += len(batch)
    assert taken == 1000


@pytest.mark.parametrize(
    "uri", ["fleet://", "fleet://a b", "fleet://here/orders", "fleet://" + "n" * 200, "fleet://a?b"]
)
def test_a_name_that_is_none_is_refused(uri: str) -> None:
    with pytest.raises(InvalidConfig, match="fleet://NAME needs a name"):
        open_publisher(uri, around=Surroundings(redis_url="redis://127.0.0.1:1"))


def test_without_a_redis_the_error_says_how_to_name_one() -> None:
    with pytest.raises(InvalidConfig, match="--redis or FLEET_REDIS_URL"):
        open_source("q", "fleet://orders", 1000, around=Surroundings())


def body(name: str) -> bytes:
    return json.dumps({"id": name, "mediationTarget": "http://h/", "messageGroupId": "g"}).encode()


async def test_who_only_looks_sees_what_is_out_delayed_or_behind_another(world: World) -> None:
    publisher, source = await world.publisher(), await world.source()
    await publisher.publish([Outgoing(name, body(name), "g") for name in ("first", "second", "third")])
    async with connected(world.server.url) as client:
        found = await own_look.find(client, "orders", "third")
        assert found is not None
        assert (found.ahead, found.head_id, found.group, found.head_visible_at_ms) == (2, "first", "g", 0)
        (taken,) = await source.poll(1, 1000)
        first = await own_look.find(client, "orders", "first")
        assert first is not None and first.leased and first.visible_at_ms > 0
        await source.nack([(Receipt(taken.broker_id, taken.handle), 60_000)])
        delayed = await own_look.find(client, "orders", "first")
        assert delayed is not None and not delayed.leased and delayed.visible_at_ms > 0
        of_group = await own_look.find(client, "orders", "g")
        assert of_group is not None and of_group.head_id == "first" and of_group.ahead == 0
        assert await own_look.find(client, "orders", "nobody") is None
