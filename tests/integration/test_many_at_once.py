"""More calls to Redis at once than there are connections, and a Redis that stalls meanwhile."""

from __future__ import annotations

import asyncio
import time

from fleet.clock import SystemClock
from fleet.state.connect import connected
from fleet.state.connections import MOST
from fleet.state.pool import Pool
from tests.integration.linking import Links
from tests.integration.owning import an_owner
from tests.servers.local import RedisServer, running_redis
from tests.waiting import eventually

STALL_S = 3.0
POOLS = [f"P{i}" for i in range(500)]
QUEUES = [f"q{i}" for i in range(250)]


async def test_a_worker_keeps_its_leases_in_five_hundred_pools_through_a_stall() -> None:
    with running_redis() as server:
        async with connected(server.url) as client:
            links = Links(client)
            await links.open(POOLS)
            links.wake()
            assert await links.claims(len(POOLS)) == set(POOLS)
            server.server.pause()
            began = time.monotonic()
            for link in links.links.values():
                for lease in link.leases.values():
                    lease.deadline_ms -= links.ttl_ms * 0.4  # time to renew them
                link.renewal.keep()
            await asyncio.sleep(STALL_S)
            server.server.resume()
            await eventually(lambda: all(link.renewal.task is None for link in links.links.values()))
            assert time.monotonic() - began < STALL_S + 2
            assert (links.errors, links.crashes, len(links.held())) == ([], [], len(POOLS))
            assert min(lease.deadline_ms for lease in links.held()) - SystemClock().boot_ms() > links.ttl_ms * 0.5
            assert _connections(server) <= MOST + 2
            await links.end()


async def test_a_coordinator_keeps_two_hundred_and_fifty_queues_through_a_stall() -> None:
    with running_redis() as server:
        async with an_owner(server.url) as owning:
            await owning.configure(*QUEUES)
            await eventually(
                lambda: len(owning.sources) == len(QUEUES) and all(source.polls for source in owning.sources),
                within_s=30,
            )
            duties = {name: one.duties for name, one in owning.ownership.owned.items()}
            server.server.pause()
            for name in QUEUES:
                owning.ownership.on_settled(name)
            owning.rounds.look()
            await asyncio.sleep(STALL_S)
            server.server.resume()
            await owning.client.ping()
            await owning.rounds.round()
            assert {name: one.duties for name, one in owning.ownership.owned.items()} == duties
            assert _connections(server) <= MOST + 2


async def test_who_waits_for_a_connection_longer_than_for_an_answer_is_told(redis_server: RedisServer) -> None:
    async with connected(f"{redis_server.url}?socket_timeout=0.5") as client:
        redis_server.server.pause()
        try:
            answers = await asyncio.gather(*(Pool(client, "P").room() for _ in range(MOST * 3)), return_exceptions=True)
        finally:
            redis_server.server.resume()
        assert {type(answer).__name__ for answer in answers} == {"StateUnavailable"}
        assert await Pool(client, "P").room() >= 0


def _connections(server: RedisServer) -> int:
    with server.client() as admin:
        return int(admin.info("clients")["connected_clients"])
