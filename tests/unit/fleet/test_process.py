"""How a process ends, and what stays of it."""

from __future__ import annotations

import asyncio

import pytest

from fleet.errors import StateUnavailable
from fleet.metrics.counters import Counters
from fleet.process import Heartbeat, Identity, Life
from fleet.state.connect import Client, connected
from fleet.state.keys import FleetKeys
from fleet.state.registry import Registry
from fleet.state.scripts import call_times
from fleet.state.totals import PIECE, Tally, labels, totals
from tests.servers.local import RedisServer
from tests.waiting import eventually

POOLS = 3 * PIECE


async def test_a_task_that_swallows_a_cancellation_is_cancelled_again() -> None:
    life, swallowed = Life(), asyncio.Event()

    async def careless() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.set()
        await asyncio.Event().wait()

    life.spawn(asyncio.ensure_future(careless()))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await life.cancel()
    assert swallowed.is_set()
    assert life.exit_code() == 0


async def test_a_task_that_crashes_ends_the_process_with_exit_code_1() -> None:
    life = Life()

    async def crash() -> None:
        raise RuntimeError("unforeseen")

    life.spawn(asyncio.ensure_future(crash()))
    async with asyncio.timeout(5):
        await life.wait()
    await life.cancel()
    assert life.exit_code() == 1


async def test_what_a_process_counted_stays_in_the_totals_when_it_ends(redis_server: RedisServer) -> None:
    counters = Counters()
    counters.add("pool", "P", "SUCCESS")
    async with connected(redis_server.url) as client:
        registry = Registry(client)
        heartbeat = Heartbeat(
            registry=registry,
            identity=Identity.new("worker"),
            ttl_ms=5000,
            describe=lambda: {"counts": {"leases_lost": 1, "q": {"acked": 5}}},
            counters=counters,
        )
        await heartbeat.beat()
        counters.add("pool", "P", "SUCCESS", 2)
        # Gone from the registry, and counting on to its end.
        await heartbeat.withdraw()
        await heartbeat.beat()
        assert await registry.processes() == []
        await heartbeat.leave()
        counted = await totals(client)
        assert counted["pool", "P"] == {"SUCCESS": 3}
        assert counted["process", "worker"] == {"leases_lost": 1}
        assert counted["queue", "q"] == {"acked": 5}
        # How long the scripts took that said so.
        assert {name for kind, name in counted if kind == "redis_call"} >= {"beat", "tally"}
        assert not [key async for key in client.scan_iter(FleetKeys.tallied + "*")], "a clean end leaves nothing behind"


async def test_a_process_that_does_nothing_tells_nothing_of_it_each_second(redis_server: RedisServer) -> None:
    async with connected(redis_server.url) as client:
        heartbeat = Heartbeat(
            registry=Registry(client), identity=Identity.new("worker"), ttl_ms=5000, describe=lambda: {"counts": {}}
        )
        await heartbeat.beat()
        while await heartbeat._tell():
            continue
        before = call_times.of(("redis_call", "tally"))
        for _ in range(5):
            await heartbeat.beat()
        assert call_times.of(("redis_call", "tally")) == before


async def all_are_told(client: Client) -> None:
    async def are_told() -> bool:
        return len(await labels(client, "pool")) >= POOLS

    await eventually(are_told)


def with_much_to_tell(client: Client, *, ttl_ms: int) -> Heartbeat:
    counters = Counters()
    for number in range(POOLS):
        counters.add("pool", str(number), "SUCCESS")
    return Heartbeat(
        registry=Registry(client), identity=Identity.new("worker"), ttl_ms=ttl_ms, describe=dict, counters=counters
    )


async def test_many_counters_are_told_a_piece_at_a_time_between_two_heartbeats(redis_server: RedisServer) -> None:
    async with connected(redis_server.url) as client:
        heartbeat = with_much_to_tell(client, ttl_ms=60_000)
        assert await heartbeat.beat() >= 2 * PIECE
        running = asyncio.get_running_loop().create_task(heartbeat.run())
        await all_are_told(client)
        running.cancel()


async def test_redis_away_between_two_pieces_ends_no_process_and_is_caught_up_with(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(redis_server.url) as client:
        heartbeat = with_much_to_tell(client, ttl_ms=3000)
        tell, told = Tally.tell, 0

        async def away_at_the_second(tally: Tally, *, now_ms: float, most: int) -> int:
            nonlocal told
            told += 1
            if told == 2:
                raise StateUnavailable
            return await tell(tally, now_ms=now_ms, most=most)

        monkeypatch.setattr(Tally, "tell", away_at_the_second)
        running = asyncio.get_running_loop().create_task(heartbeat.run())
        await all_are_told(client)
        assert told > 2 and not running.done()
        running.cancel()
