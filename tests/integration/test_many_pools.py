"""Ten thousand pools on a real server: what looks, follows and tells costs calls and bytes by processes plus pools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from fleet.clock import SystemClock
from fleet.delivery.client import HttpClient
from fleet.metrics.counters import Counters
from fleet.operate.status import status
from fleet.process import Heartbeat, Identity, Life
from fleet.server.aside import Here
from fleet.server.breakers import BreakerBoard
from fleet.server.depths import Depths
from fleet.server.metrics import exposition
from fleet.state.connect import Client, connected
from fleet.state.keys import CHANGED_CHANNEL, FleetKeys
from fleet.state.known_pools import UNSIGNED
from fleet.state.pool import Pool, PoolSettings
from fleet.state.registry import Registry
from fleet.state.totals import PIECE, Tally
from tests.servers.local import RedisServer
from tests.waiting import eventually
from tests.worker_settings import worker_settings
from workers.worker import Worker

POOLS = 10_000
CODES = [f"POOL-{number}" for number in range(POOLS)]
PROCESSES = 50


class Cost:
    """What a Redis was asked and what it said since."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.bytes_in = self.bytes_out = 0


@asynccontextmanager
async def cost_of(client: Client) -> AsyncIterator[Cost]:
    found = Cost()
    await client.config_resetstat()
    yield found
    stats, after = await client.info("commandstats"), await client.info("stats")
    found.calls = {name.removeprefix("cmdstat_"): int(figures["calls"]) for name, figures in stats.items()}
    found.bytes_in, found.bytes_out = (int(after[f"total_net_{way}_bytes"]) for way in ("input", "output"))


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[Client]:
    async with connected(redis_server.url) as client:
        await Registry(client).publish_config(b"{}")
        gate = asyncio.Semaphore(50)

        async def configure(code: str) -> None:
            async with gate:
                await Pool(client, code).configure("1", PoolSettings(10, 200))

        await asyncio.gather(*map(configure, CODES))
        await Registry(client).add_pools(dict.fromkeys(CODES, UNSIGNED))
        yield client


def counted_everywhere() -> Counters:
    counters = Counters()
    for code in CODES:
        counters.add("pool", code, "SUCCESS")
        for kind in ("wait", "delivery"):
            counters.observe(kind, code, 0.02)
    return counters


async def test_a_look_at_the_fleet_costs_calls_and_bytes_by_processes_plus_pools(client: Client) -> None:
    await Tally(client, "w", counted_everywhere()).tell_all(now_ms=0)
    for number in range(PROCESSES):
        record = {"role": "worker", "name": f"w{number}", "outcomes": {"SUCCESS": POOLS}}
        await Registry(client).beat(f"w{number}", record, ttl_ms=60_000)
    async with cost_of(client) as looked:
        now = await status(client)
    assert (len(now.pools), len(now.records)) == (POOLS, PROCESSES)
    assert all(pool.outcomes["SUCCESS"] == 1 for pool in now.pools)
    # A hundred pools a call, the first ones twice as Redis does not know the script; of what they counted a thousand.
    assert looked.calls["evalsha"] + looked.calls.get("eval", 0) < POOLS / 100 + 40
    assert looked.calls["hscan"] < 2 * POOLS / 1000 + 10
    assert looked.calls["hgetall"] == POOLS + 2, "each pool's settings once, the processes once, the breakers once"
    assert looked.bytes_out < 300 * POOLS + 1000 * PROCESSES
    async with cost_of(client) as scraped:
        page = await exposition(
            Here(client), depths=Depths(clock=SystemClock()), breakers=BreakerBoard(client), due=None
        )
    assert page.count(b'outcome="SUCCESS"') == POOLS
    assert scraped.calls["hscan"] < 3 * 2 * POOLS / 1000 + 20, "each kind of the totals once"
    assert scraped.calls["hgetall"] < POOLS + 5
    assert scraped.bytes_out < 600 * POOLS + 1000 * PROCESSES


async def test_a_heartbeat_says_the_same_few_bytes_however_many_pools_were_served(client: Client) -> None:
    counters = counted_everywhere()
    heartbeat = Heartbeat(
        registry=Registry(client),
        identity=(me := Identity.new("worker")),
        ttl_ms=60_000,
        describe=lambda: {"outcomes": {"SUCCESS": POOLS}},
        counters=counters,
    )
    await heartbeat.beat()
    for _ in range(3):
        async with cost_of(client) as beat:
            assert await heartbeat.beat() > POOLS
        assert beat.calls["evalsha"] + beat.calls.get("eval", 0) == 2, "it lives, and one piece of what it counted"
        assert beat.bytes_in < 2000 + 100 * PIECE
    assert await client.hstrlen(FleetKeys.processes, me.name) < 500
    await heartbeat.leave()
    assert await client.hlen(FleetKeys.totals + "wait") == POOLS
    assert not await client.exists(FleetKeys.tallied + me.name)
    assert not await client.hexists(FleetKeys.processes, me.name)


async def test_a_worker_reads_the_pools_when_they_changed_and_at_no_lease(
    client: Client, redis_server: RedisServer
) -> None:
    life, http = Life(), HttpClient(http_version="HTTP_1_1")
    worker = Worker(
        identity=Identity.new("worker"),
        client=client,
        http=http,
        clock=SystemClock(),
        life=life,
        settings=worker_settings(redis_server.url, ttl_ms=60_000),
        forbids_url=lambda _: False,
        pool_globs=["POOL-1*", "LATER"],
    )
    ours = sum(code.startswith("POOL-1") for code in CODES)
    running = asyncio.ensure_future(worker.run())
    try:
        await eventually(lambda: len(worker._links) == ours)
        async with cost_of(client) as looked:
            for _ in range(20):
                await client.publish(CHANGED_CHANNEL, "lease")
            # Heard after those, and by the same worker.
            await Registry(client).announce_config()
            await eventually(partial(_was_asked, client))
        assert not looked.calls.keys() & {"sscan", "hscan", "smembers"}
        await Registry(client).add_pools({"LATER": UNSIGNED})
        await Registry(client).announce_config()
        await eventually(lambda: "LATER" in worker._links)
        await Registry(client).forget_pool("LATER")
        await Registry(client).announce_config()
        await eventually(lambda: "LATER" not in worker._links)
    finally:
        life.end()
        await running
        http.close()


async def _was_asked(client: Client) -> bool:
    """Whether the worker has asked for the version of the pools."""
    return "cmdstat_hmget" in await client.info("commandstats")
