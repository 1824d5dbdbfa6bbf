"""Workers that share pools on a real Redis: nobody idle misses work because its home is full, gone or hung."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast
from unittest.mock import AsyncMock

from fleet.clock import SystemClock
from fleet.delivery.reply import Reply
from fleet.process import Identity, Life
from fleet.state.connect import Client, connected
from fleet.state.pool import Pool, PoolSettings
from fleet.state.registry import Registry
from tests.integration.linking import Links
from tests.servers.local import RedisServer
from tests.state.stage import entry
from tests.waiting import eventually
from tests.worker_settings import worker_settings
from workers.worker import Worker

TTL_MS = 1500
CODES = [f"P{number}" for number in range(12)]
ANSWERS, HANGS = "http://127.0.0.1:9/answers", "http://127.0.0.1:9/hangs"


class Transfer:
    def abort(self) -> None:
        return


class Http:
    """Answers at once, or never."""

    before_io: Callable[[], None] | None = None

    def __init__(self, delivered: list[str]) -> None:
        self._delivered = delivered

    def post(
        self, url: str, _headers: list[str], body: bytes, *, timeout_ms: int, done: Callable[[Reply], None]
    ) -> Any:
        if url == ANSWERS:
            self._delivered.append(body.decode().split('"')[3])
            asyncio.get_running_loop().call_soon(done, Reply(200, b"", 0.0))
        return Transfer()


@dataclass
class Fleet:
    url: str
    client: Client
    delivered: list[str] = field(default_factory=list)
    sent: int = 0

    async def configure(self) -> None:
        for code in CODES:
            await Pool(self.client, code).configure("1", PoolSettings(concurrency=10, capacity=50))
        await Registry(self.client).add_pools(set(CODES))

    async def send(self, code: str, target: str = ANSWERS) -> None:
        self.sent += 1
        one = replace(entry(str(self.sent), f"g{self.sent}"), target=target)
        assert (await Pool(self.client, code).submit("q", "1", [one])).accepted == 1

    @asynccontextmanager
    async def worker(self, max_in_flight: int = 50) -> AsyncIterator[Worker]:
        async with connected(self.url) as client:
            life = Life()
            worker = Worker(
                identity=Identity.new("worker"),
                client=client,
                http=cast(Any, Http(self.delivered)),
                clock=SystemClock(),
                life=life,
                settings=worker_settings(self.url, ttl_ms=TTL_MS, timeout_ms=60_000, max_in_flight=max_in_flight),
                forbids_url=lambda _: False,
            )
            working = asyncio.ensure_future(worker.run())
            try:
                yield worker
            finally:
                life.end()
                await working

    async def eventually_delivered(self, count: int, within_s: float) -> None:
        await eventually(partial(self._has_delivered, count), within_s=within_s)

    def _has_delivered(self, count: int) -> bool:
        return len(self.delivered) >= count


@asynccontextmanager
async def a_fleet(url: str) -> AsyncIterator[Fleet]:
    async with connected(url) as client:
        fleet = Fleet(url, client)
        await fleet.configure()
        yield fleet


def places(worker: Worker) -> list[int]:
    return [link.place for link in worker._links.values()]


async def both_know(first: Worker, second: Worker) -> None:
    """Each pool has one of them as its first home, and both agree."""
    await eventually(
        lambda: len(places(first)) == len(CODES) and [1 - place for place in places(first)] == places(second),
        within_s=10,
    )


async def test_a_message_for_a_home_that_is_full_is_delivered_by_another_worker(redis_server: RedisServer) -> None:
    async with a_fleet(redis_server.url) as fleet, fleet.worker(max_in_flight=1) as full:
        await fleet.send("P0", HANGS)
        await eventually(lambda: full.describe()["inFlight"] == 1)
        async with fleet.worker() as idle:
            await both_know(full, idle)
            for code in CODES:
                await fleet.send(code)
            await fleet.eventually_delivered(len(CODES), within_s=5)


async def test_what_falls_due_in_a_pool_whose_first_home_is_full_is_seen_to(redis_server: RedisServer) -> None:
    async with a_fleet(redis_server.url) as fleet:
        # Somebody claimed one message of each pool and died.
        for code in CODES:
            await fleet.send(code)
            assert (await Pool(fleet.client, code).exchange("dead", ttl_ms=TTL_MS, want=1, place=5)).claims
        async with fleet.worker(max_in_flight=1) as full:
            await fleet.send("P0", HANGS)
            await eventually(lambda: full.describe()["inFlight"] == 1)
            async with fleet.worker() as idle:
                await both_know(full, idle)
                await fleet.eventually_delivered(len(CODES), within_s=2 * TTL_MS / 1000 + 5)


async def test_a_home_that_hangs_is_followed_within_a_lease(redis_server: RedisServer) -> None:
    async with a_fleet(redis_server.url) as fleet, fleet.worker() as alive, fleet.worker() as hung:
        await both_know(alive, hung)
        vars(hung.heartbeat)["beat"] = AsyncMock(return_value=0)
        # It hears of work, and does nothing.
        for link in hung._links.values():
            link.wake = link.look = lambda: None  # type: ignore[method-assign]
        for code in CODES:
            await fleet.send(code)
        await fleet.eventually_delivered(len(CODES), within_s=TTL_MS / 1000 + 5)
        assert set(places(alive)) == {0}


async def test_a_worker_that_leaves_is_followed_at_once(redis_server: RedisServer) -> None:
    async with a_fleet(redis_server.url) as fleet, fleet.worker() as stays:
        async with fleet.worker() as leaves:
            await both_know(stays, leaves)
        for code in CODES:
            await fleet.send(code)
        await fleet.eventually_delivered(len(CODES), within_s=5)


async def test_who_had_a_pool_that_went_claims_nothing_there_when_it_is_back(redis_server: RedisServer) -> None:
    """A late report has its outbox trimmed, and hears with that when something is due: nobody would keep its lease."""
    async with connected(redis_server.url) as client:
        links = Links(client)
        await links.open(["P"])
        link = links.links["P"]
        link.close()
        link.trim(1)
        link.due.told(50)
        link.look()
        await eventually(lambda: not link.busy)
        await asyncio.sleep(0.2)
        assert (links.held(), links.errors, links.crashes) == ([], [], [])
        await links.end()
