"""One node of a Cluster that hangs, or dies, and what the others' pools notice of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import pytest

from fleet import waiting
from fleet.errors import StateUnavailable
from fleet.state import observe
from fleet.state.connect import Client, connected
from fleet.state.connections import TIMEOUT_S
from fleet.state.keys import PoolKeys
from fleet.state.pool import Pool
from fleet.state.registry import Registry
from tests.integration.linking import Links
from tests.servers.local import RedisCluster, RedisServer, running_redis_cluster
from tests.state.stage import pool_settings
from tests.waiting import answered

POOLS = [f"P{i}" for i in range(60)]
AT_ONCE_S = TIMEOUT_S / 2
"""Of a call to a node that works, on a busy machine; one that waits for another's node takes five."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with running_redis_cluster() as found:
        yield found


@contextmanager
def frozen(node: RedisServer) -> Iterator[None]:
    node.server.pause()
    try:
        yield
    finally:
        node.server.resume()


@asynccontextmanager
async def on(cluster: RedisCluster) -> AsyncIterator[Client]:
    cluster.reset()
    async with connected(cluster.url) as client:
        yield client


def of_node(client: Client, node: RedisServer) -> tuple[list[str], list[str]]:
    """Pools that this node has, and those of the others."""
    there = {code for code in POOLS if client.node_of(PoolKeys(code).entries).endswith(f":{node.port}")}
    assert 0 < len(there) < len(POOLS)
    return sorted(there), sorted(set(POOLS) - there)


async def test_pools_of_healthy_nodes_go_on_while_every_pool_of_another_waits_for_it(cluster: RedisCluster) -> None:
    async with on(cluster) as client:
        links = Links(client)
        await links.open(POOLS)
        gone, healthy = of_node(client, cluster.nodes[1])
        with frozen(cluster.nodes[1]):
            links.wake(gone)
            began = time.monotonic()
            links.wake(healthy)
            assert await links.claims(len(healthy)) == set(healthy)
            assert time.monotonic() - began < AT_ONCE_S
            # And again, once every call to the other node has failed and asks for a new map of the slots.
            await until_away(client, gone)
            await _calls_are_quick(client, healthy, 0.5)
            assert links.claimed.empty()
        assert await links.claims(len(gone), within_s=5) == set(gone)
        assert links.crashes == []
        await links.end()


async def test_what_any_node_can_say_is_said_while_one_hangs(cluster: RedisCluster) -> None:
    async with on(cluster) as client:
        for code in POOLS:
            await Pool(client, code).configure("1", pool_settings())
        gone, healthy = of_node(client, cluster.nodes[2])
        with frozen(cluster.nodes[2]):
            await until_away(client, gone)
            began = time.monotonic()
            for _ in range(10):
                await Registry(client).clock_ms()
                await Registry(client).memory_share()
            assert set(await observe.pool_settings(client, healthy)) == set(healthy)
            assert time.monotonic() - began < AT_ONCE_S


async def test_calls_to_a_node_that_hangs_fail_at_once_after_the_first_until_it_answers(cluster: RedisCluster) -> None:
    async with on(cluster) as client:
        gone, _ = of_node(client, cluster.nodes[0])
        pool = Pool(client, gone[0])
        await pool.configure("1", pool_settings())
        with frozen(cluster.nodes[0]):
            await until_away(client, gone)
            began = time.monotonic()
            for _ in range(20):
                with pytest.raises(StateUnavailable, match="does not answer"):
                    await pool.room()
            assert time.monotonic() - began < AT_ONCE_S
        await answered(pool.room, StateUnavailable, within_s=3)


async def test_a_process_may_start_while_a_node_hangs(cluster: RedisCluster) -> None:
    cluster.reset()
    others = [node for node in cluster.nodes if f":{node.port}" not in cluster.url]
    for node in others:
        with frozen(node):
            async with connected(cluster.url) as client:
                _, healthy = of_node(client, node)
                await Pool(client, healthy[0]).configure("1", pool_settings())


@pytest.mark.parametrize("again_s", [0.1, 0.0], ids=["", "cancelled over and over"])
async def test_no_call_waits_for_a_node_that_was_killed_and_no_connection_is_left(
    monkeypatch: pytest.MonkeyPatch, again_s: float
) -> None:
    """On a busy machine, who closes connections as it ends is cancelled once more meanwhile."""
    monkeypatch.setattr(waiting, "_AGAIN_S", again_s)
    with running_redis_cluster() as cluster:
        async with connected(cluster.url) as client:
            gone, healthy = of_node(client, cluster.nodes[1])
            pool = Pool(client, gone[0])
            assert await pool.room() >= 0
            cluster.nodes[1].server.kill()
            for _ in range(10):
                with pytest.raises(StateUnavailable):
                    await pool.room()
            await _calls_are_quick(client, healthy, 0.5)


async def test_more_calls_than_connections_wait_their_turn_in_a_cluster_too(cluster: RedisCluster) -> None:
    async with on(cluster) as client:
        answers = await asyncio.gather(*(Pool(client, POOLS[i % 60]).room() for i in range(600)))
        assert len(answers) == 600
        for node in cluster.nodes:
            with node.client() as admin:
                assert int(admin.info("clients")["connected_clients"]) < 60


async def until_away(client: Client, codes: Sequence[str]) -> None:
    """Until a call to that node has failed for want of an answer."""
    with pytest.raises(StateUnavailable):
        await asyncio.wait_for(Pool(client, codes[0]).room(), 12)


async def _calls_are_quick(client: Client, codes: Sequence[str], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        await asyncio.gather(*(Pool(client, code).room() for code in codes))
        assert time.monotonic() - began < AT_ONCE_S
