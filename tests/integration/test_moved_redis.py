"""A Redis whose address leads elsewhere now, and one whose line is silent."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from fleet.errors import StateUnavailable
from fleet.state import signals as signals_module
from fleet.state.connect import Client, connected, subscribe_connection, translated
from fleet.state.connections import MOST, Connections, Watched
from fleet.state.pool import Pool, PoolSettings
from fleet.state.signals import Signals
from fleet.waiting import cancel
from tests.servers.local import RedisCluster, RedisServer, running_redis
from tests.servers.proxy import Proxy, proxied

PING_S = 0.2


@asynccontextmanager
async def moved_from(first: RedisServer, second: RedisServer) -> AsyncIterator[tuple[Proxy, Client]]:
    """A client with every connection that it may have, through a proxy that leads to the first."""
    with proxied(first.port) as proxy:
        async with connected(f"redis://127.0.0.1:{proxy.port}") as client:
            await asyncio.gather(*(client.ping() for _ in range(MOST)))
            yield proxy, client


async def test_after_a_failover_behind_one_address_one_call_fails_and_the_next_reaches_the_new_master() -> None:
    with running_redis() as first, running_redis() as second:
        async with moved_from(first, second) as (proxy, client):
            proxy.move(second.port)
            _demote(first, second)
            with pytest.raises(StateUnavailable, match="READONLY"):
                await _write(client)
            for _ in range(MOST * 2):
                await _write(client)
            with second.client() as there:
                assert there.exists("{p:P}:settings")


async def test_after_a_silent_failover_one_time_out_is_enough() -> None:
    with running_redis() as first, running_redis() as second, proxied(first.port) as proxy:
        async with connected(f"redis://127.0.0.1:{proxy.port}?socket_timeout=0.3") as client:
            await asyncio.gather(*(client.ping() for _ in range(MOST)))
            first.server.pause()
            proxy.move(second.port)
            with pytest.raises(StateUnavailable):
                await _write(client)
            for _ in range(MOST * 2):
                await _write(client)
            first.server.resume()


async def test_signals_follow_the_address_to_the_new_master() -> None:
    with running_redis() as first, running_redis() as second:
        async with moved_from(first, second) as (proxy, client), hearing(client) as heard:
            await heard("a", first)
            proxy.move(second.port)
            # Demoted, and a replica of nobody: what is published reaches the new master alone.
            with first.client() as admin:
                admin.execute_command("REPLICAOF", "127.0.0.1", "1")
            with pytest.raises(StateUnavailable, match="READONLY"):
                await _write(client)
            await heard("b", second)


async def test_signals_do_not_stay_deaf_behind_a_line_that_is_silent() -> None:
    with running_redis() as server, proxied(server.port) as proxy:
        async with connected(f"redis://127.0.0.1:{proxy.port}") as client, hearing(client) as heard:
            await heard("a", server)
            proxy.silence()
            await heard("b", server)


async def test_a_line_that_breaks_while_it_is_changed_ends_nobody(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One says what is to be heard, one hears, and both meet the end of the line. Neither may connect it anew under the
    other, or each reads the other's answers: workers ended by that in the storm of order."""
    monkeypatch.setattr(signals_module, "_RETRY_S", 0.01)
    heard = asyncio.Event()
    async with connected(redis_server.url) as client:
        signals = Signals(
            client=client, url=redis_server.url, handlers={"other": lambda _: None}, on_subscribed=lambda: None,
            prefix="c:", on_prefixed=lambda _, message: heard.set() if message else None, ping_every_s=PING_S,
        )  # fmt: skip
        running = asyncio.get_running_loop().create_task(signals.run())
        for turn in range(100):
            killing = asyncio.gather(_end_lines(client, after_ms=turn % 4))
            for change in range(6):
                await signals.follow({"stays", *(f"{turn}-{change}-{number}" for number in range(300))})
                await asyncio.sleep(0)
            await killing
            assert not running.done(), running.exception()
        async with asyncio.timeout(30):
            while not heard.is_set():
                await client.publish("c:stays", "still here")
                await asyncio.sleep(PING_S / 10)
        await cancel([running])


async def _end_lines(client: Client, *, after_ms: int) -> None:
    await asyncio.sleep(after_ms / 1000)
    await client.client_kill_filter(_type="pubsub")


async def test_signals_of_a_line_that_is_only_quiet_stay_on_it() -> None:
    with running_redis() as server, proxied(server.port) as proxy:
        async with connected(f"redis://127.0.0.1:{proxy.port}") as client, hearing(client) as heard:
            await heard("a", server)
            with server.client() as admin:
                before = admin.info("stats")["total_connections_received"]
                await asyncio.sleep(PING_S * 5)  # silence is the matter here
                assert admin.info("stats")["total_connections_received"] == before


async def test_connections_are_kept_alive_by_tcp(redis_server: RedisServer) -> None:
    async with connected(redis_server.url) as client:
        connection = await client.connection_pool.get_connection()
        line = connection._writer.get_extra_info("socket")
        assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [line.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [15, 5, 3]
        await client.connection_pool.release(connection)


async def test_a_subscription_in_a_cluster_leaves_the_node_that_was_silent(redis_cluster: RedisCluster) -> None:
    url = redis_cluster.url
    async with connected(url) as client:
        nodes = {node.name for node in client.get_nodes()}
        silent = next(iter(nodes))
        found = set()
        for _ in range(20):
            plain = await subscribe_connection(client, url, but=silent)
            where = plain.connection_pool.connection_kwargs
            found.add(f"{where['host']}:{where['port']}")
            await plain.aclose()
        assert found == nodes - {silent}


@asynccontextmanager
async def hearing(client: Client) -> AsyncIterator[Callable[[str, RedisServer], Awaitable[None]]]:
    """What a channel says, as `Signals` hears it."""
    news: asyncio.Queue[str] = asyncio.Queue()
    ready = asyncio.Event()
    signals = Signals(
        client=client, url="", handlers={"ch": news.put_nowait}, on_subscribed=ready.set, ping_every_s=PING_S
    )
    running = asyncio.create_task(signals.run())

    async def heard(word: str, server: RedisServer) -> None:
        async with asyncio.timeout(5):
            await ready.wait()
            said = asyncio.create_task(_say_on(word, server))
            while await news.get() != word:
                continue
            await cancel([said])

    try:
        yield heard
    finally:
        await cancel([running])


async def _say_on(word: str, server: RedisServer) -> None:
    """Again and again: who listens to another server, or to a dead line, misses it."""
    with server.client() as there:
        while True:
            there.publish("ch", word)
            await asyncio.sleep(0.02)


async def _write(client: Client) -> None:
    await Pool(client, "P").configure("1", PoolSettings(concurrency=1, capacity=50))


def _demote(first: RedisServer, second: RedisServer) -> None:
    with first.client() as admin:
        admin.execute_command("REPLICAOF", "127.0.0.1", second.port)


def test_what_is_said_on_a_line_that_was_given_up_fails_as_a_line_that_is_lost() -> None:
    """As of a process that was stopped for longer than an answer may take: all lines are given up by the first of its
    calls that goes on, and its signals have not read that yet when they ping."""

    async def ping(url: str) -> None:
        async with connected(url) as client:
            line = client.pubsub()
            await line.subscribe("c")
            assert isinstance(line.connection, Watched)
            line.connection.abort()
            with pytest.raises(StateUnavailable), translated():
                await line.ping()

    with running_redis() as server:
        # As processes do it: the transports of asyncio itself take what is written to a closed one.
        uvloop.run(ping(server.url))


async def test_a_renewal_before_the_last_one_was_noticed_ends_nothing(redis_server: RedisServer) -> None:
    """A server that refuses for long renews connections again and again, and each time the signals begin anew."""
    said: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: said.append(str(context.get("exception"))))
    begun = asyncio.Queue[None]()
    async with connected(redis_server.url) as client:
        pool = client.connection_pool
        assert isinstance(pool, Connections)
        signals = Signals(
            client=client,
            url=redis_server.url,
            handlers={"other": lambda _: None},
            on_subscribed=lambda: None,
            prefix="x:",
            ping_every_s=60,
        )
        await signals.follow({"one"})
        signals._on_prefixed = lambda *_: begun.put_nowait(None)
        running = asyncio.create_task(signals.run())
        for _ in range(3):
            await begun.get()
            pool._renew()
            loop.call_soon(pool._renew)  # after its timeout has expired, before its task hears of that
        await begun.get()
        await cancel([running])
    assert said == []
