"""The breakers of two workers on one Redis: one opens, both know; one probes, the other waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fleet.delivery import breakers as module
from fleet.delivery.breaker import ASK, PASS, PROBE, Admit, Open
from fleet.state.breakers import BreakerRules, SharedBreakers
from fleet.state.connect import connect
from tests.integration.breaker_bench import ORIGIN, OTHER, PERMIT_MS, WITHIN_S, Bench, benches
from tests.servers.local import RedisServer, running_redis
from tests.waiting import eventually


@pytest.fixture
async def pair(redis_server: RedisServer) -> AsyncIterator[list[Bench]]:
    async with benches(redis_server.url, "a", "b") as found:
        yield found


async def test_one_opens_and_the_other_refuses_without_a_request_of_its_own(redis_server: RedisServer) -> None:
    rules = BreakerRules()
    async with benches(redis_server.url, "a", "b", rules=rules) as (a, b):
        a.fail()
        assert isinstance(a.admit(), Open)
        async with asyncio.timeout(WITHIN_S):
            await b.heard.wait()
        refused = b.admit()
        assert isinstance(refused, Open) and 0 < refused.retry_after_ms <= rules.open_ms
        assert b.admit(OTHER) is PASS


async def test_one_that_starts_later_reads_what_is_open(pair: list[Bench], redis_server: RedisServer) -> None:
    a, _ = pair
    a.fail()
    await pair[1].opened()
    async with benches(redis_server.url, "c") as (c,):
        await c.until(lambda: c.admit() is not PASS)


async def test_one_probe_at_a_time_and_three_successes_close_it_for_both(pair: list[Bench]) -> None:
    a, b = pair
    a.fail()
    await b.opened()
    await a.half_open()
    await b.half_open()
    assert await a.asked() is PROBE
    assert isinstance(a.admit(), Open)
    assert isinstance(await b.asked(), Open)
    a.record(True, probe=True)
    await b.probe(True)
    assert {view.state for view in await b.views()} == {"half-open"}
    await a.probe(True)
    await a.until(lambda: a.admit() is PASS)
    await b.until(lambda: b.admit() is PASS)
    assert await a.views() == []


async def test_a_probe_that_fails_opens_it_for_both(pair: list[Bench]) -> None:
    a, b = pair
    a.fail()
    await b.opened()
    await b.half_open()
    b.heard.clear()
    await a.probe(False)
    assert a.admit() is not PASS
    async with asyncio.timeout(WITHIN_S):
        await b.heard.wait()
    assert b.admit() is not PASS
    assert (await b.views())[0].openings == 2


async def test_a_prober_that_was_killed_holds_up_nobody_beyond_its_permit(pair: list[Bench]) -> None:
    a, b = pair
    a.fail()
    await b.opened()
    await a.half_open()
    assert await a.asked() is PROBE
    await a.die()
    told: list[Admit] = []
    async with asyncio.timeout(PERMIT_MS / 1000 + WITHIN_S):
        while PROBE not in told:
            await b.half_open()
            told.append(await b.asked())
    assert isinstance(told[0], Open)


async def test_a_probe_that_takes_longer_than_its_permit_keeps_it(pair: list[Bench]) -> None:
    a, b = pair
    a.fail()
    await b.opened()
    await a.half_open()
    assert await a.asked() is PROBE
    loop = asyncio.get_running_loop()
    over = loop.time() + 2 * PERMIT_MS / 1000
    while loop.time() < over:
        await b.half_open()
        assert isinstance(await b.asked(), Open)
    a.record(True, probe=True)
    assert await a.asked() is PROBE
    assert (await a.views())[0].successes == 1


async def test_a_permit_that_nobody_uses_is_given_back_at_once(pair: list[Bench]) -> None:
    a, b = pair
    a.fail()
    await b.opened()
    await a.half_open()
    given_up = a.breakers.ask(ORIGIN, lambda: pytest.fail("it was given up"))
    given_up.cancel()
    await b.permitted()
    b.breakers.release(ORIGIN)
    await a.permitted()
    assert (await a.views())[0].successes == 0


async def test_a_reset_closes_it_for_both_at_once(pair: list[Bench]) -> None:
    a, b = pair
    for origin in (ORIGIN, OTHER):
        a.fail(origin)
        await b.until(lambda origin=origin: b.admit(origin) is not PASS)  # type: ignore[misc]
    await SharedBreakers(a.client).reset(ORIGIN)
    for bench in pair:
        await bench.until(lambda bench=bench: bench.admit() is PASS)  # type: ignore[misc]
        assert bench.admit(OTHER) is not PASS
    await SharedBreakers(a.client).reset_all()
    for bench in pair:
        await bench.until(lambda bench=bench: bench.admit(OTHER) is PASS)  # type: ignore[misc]


async def test_without_redis_each_goes_on_by_itself_and_tells_it_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.02)
    with running_redis() as first:
        async with benches(first.url, "a", "b") as (a, b):
            first.server.kill()
            a.fail()
            assert a.admit() is not PASS
            for _ in range(3):
                await a.probe(True)
            assert a.admit() is PASS
            b.fail()
            await b.probe(False)
            b.clock.ahead_ms -= 60_000  # it stays open, so that there is something to tell
            with running_redis(port=first.port):
                await a.until(lambda: a.admit() is not PASS)
                assert [view.origin for view in await b.views()] == [ORIGIN]


async def test_a_probe_that_failed_while_redis_was_away_is_told_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.02)
    with running_redis() as first:
        async with benches(first.url, "a") as (a,):
            a.fail()
            await a.permitted()
            first.server.kill()
            a.record(False, probe=True)
            a.clock.ahead_ms -= 60_000  # it stays open, so that there is something to tell
            # A call on a connection of before would go to the next server, which is there by then and knows nothing.
            await a.until(lambda: ORIGIN in a.breakers._unsaid)
            with running_redis(port=first.port) as second:
                client = await connect(second.url)
                asked = SharedBreakers(client)

                async def was_told() -> bool:
                    return bool((await asked.all())[1])

                await eventually(was_told, within_s=WITHIN_S)
                await client.aclose()


async def test_a_redis_that_hangs_holds_a_message_no_longer_than_a_second() -> None:
    assert module.ASK_WITHIN_S == 1.0
    with running_redis() as server:
        async with benches(server.url, "a", ask_within_s=0.05) as (a,):
            a.fail()
            await a.until(lambda: a.admit() is ASK)
            server.server.pause()
            try:
                assert await a.asked() is PROBE
                a.record(True, probe=True)
                assert a.admit() is ASK
            finally:
                server.server.resume()


async def test_what_was_missed_while_the_subscription_was_broken_is_read_again(pair: list[Bench]) -> None:
    a, b = pair
    a.fail()
    await b.opened()
    # The message of the reset reaches nobody: it is written past the script.
    await a.client.delete("{fleet}:breakers", "{fleet}:breakers_seen")
    b.breakers.resync()
    await b.until(lambda: b.admit() is PASS)
    a.breakers.resync()
    await a.until(lambda: a.admit() is PASS)


async def test_memory_is_bounded_and_the_idle_are_forgotten(redis_server: RedisServer) -> None:
    async with benches(redis_server.url, "a", most_origins=100, idle_ms=60_000) as (a,):
        for i in range(1000):
            a.admit(f"http://{i}")
        assert len(a.breakers) == 100
        a.fail("http://999")
        for i in range(99):
            a.admit(f"http://new{i}")
        assert a.admit("http://999") is not PASS, "what is used stays"
        a.clock.ahead_ms = 60_001
        for i in range(20):
            a.admit(f"http://newer{i}")
        assert len(a.breakers) == 20


async def test_a_message_that_asks_while_its_breaker_is_forgotten_is_told_all_the_same(
    redis_server: RedisServer,
) -> None:
    async with benches(redis_server.url, "a", most_origins=1, ask_within_s=0.05) as (a,):
        a.fail()
        await a.half_open()
        told: asyncio.Future[Admit] = asyncio.get_running_loop().create_future()
        a.breakers.ask(ORIGIN, lambda: told.set_result(a.admit()))
        a.admit(OTHER)
        async with asyncio.timeout(WITHIN_S):
            assert await told is PASS
