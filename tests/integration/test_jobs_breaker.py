"""Jobs whose target fails: the breaker of its origin opens, and until it closes no job of it is claimed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text, update

from fleet.delivery.breaker import PASS
from fleet.jobs.database import reading, writing
from fleet.jobs.records import Busy, Job, Taken
from fleet.jobs.schema import dispatch_jobs
from fleet.processing.process import Answer, Processor
from fleet.processing.targets import PROBED_DELAY_S
from fleet.state.breakers import BreakerRules
from spark.begun import begun
from tests.integration.breaker_bench import PERMIT_MS, RULES, WITHIN_S, Bench, benches
from tests.integration.job_store import InStore, a_store, added
from tests.integration.processing import FAILED, OK, a_processor
from tests.servers.local import RedisServer
from tests.unit.delivery.endpoints import Endpoint, answering, endpoint
from tests.waiting import eventually, until

LONG = BreakerRules(open_ms=60_000)
_WAITING = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")


@dataclass
class Server(InStore):
    """What two server processes have of their own."""

    bench: Bench
    processor: Processor

    def add(self, url: str, **given: Any) -> Job:
        return added(self.store, target_url=url, **given)

    async def process(self, url: str) -> tuple[Job, Answer]:
        job = self.add(url)
        answer = await self.processor.process(job.id, job.attempt)
        return self.job(job.id), answer

    async def fail(self, url: str) -> None:
        for _ in range(RULES.window):
            assert (await self.process(url))[1].ack is True


@asynccontextmanager
async def servers(
    database_url: str, redis: RedisServer, *, rules: BreakerRules = RULES, deny: tuple[str, ...] = ()
) -> AsyncIterator[list[Server]]:
    async with benches(redis.url, "a", "b", rules=rules) as found, AsyncExitStack() as stack:
        made = []
        for bench in found:
            store = stack.enter_context(a_store(database_url))
            processor, _ = await stack.enter_async_context(
                a_processor(store, bench.client, bench.clock, bench.breakers, deny=deny)
            )
            made.append(Server(store, bench, processor))
        yield made


def origin(server: Endpoint) -> str:
    return server.url.removesuffix("/hook")


async def test_no_job_is_claimed_and_no_attempt_spent_while_the_breaker_of_its_target_is_open(
    database_url: str, redis_server: RedisServer
) -> None:
    async with (
        endpoint(answering(FAILED)) as target,
        endpoint(answering(OK)) as other,
        servers(database_url, redis_server, rules=LONG) as (a, b),
    ):
        await a.fail(target.url)
        await b.bench.opened(origin(target))
        for server in (a, b):
            job, answer = await server.process(target.url)
            assert answer.ack is True
            assert answer.message.startswith(f"the circuit breaker of {origin(target)} is open: it goes again in ")
            assert (job.status, job.attempt, job.last_error) == ("PENDING", 2, None)
            assert 50_000 < (job.scheduled_ms or 0) - server.bench.clock.wall_ms() <= 60_000
            assert server.store.attempts(job.id) == []
            assert server.processor.counts["refused.breaker"] == 1
        assert len(target.requests) == RULES.window
        assert (await b.process(other.url))[0].status == "COMPLETED"
        late = b.add(target.url, expires_ms=1)
        assert (await b.processor.process(late.id, 1)).ack is True
        assert b.job(late.id).status == "EXPIRED"


async def test_with_a_job_go_back_those_behind_it_that_may_be_out_and_their_messages_deliver_nothing(
    database_url: str, redis_server: RedisServer
) -> None:
    async with (
        endpoint(answering(FAILED)) as target,
        endpoint(answering(OK)) as other,
        servers(database_url, redis_server, rules=LONG) as (a, _),
    ):
        await a.fail(target.url)
        ordered = {"msg_group": "g", "mode": "NEXT_ON_ERROR"}
        before = a.add(other.url, **ordered)
        dead = a.add(target.url, **ordered)
        tried = a.add(other.url, **ordered)
        a.set(tried, last_error="HTTP 500")
        behind = a.add(other.url, **ordered)
        unordered = a.add(other.url, msg_group="g", mode="IMMEDIATE")
        tomorrow = a.add(other.url, scheduled_ms=(far := 2**45), **ordered)
        within = a.add(other.url, **ordered)
        beyond = a.add(other.url, **ordered)
        foreign = a.add(other.url, msg_group="h", mode="NEXT_ON_ERROR")
        answer = await a.processor.process(dead.id, 1)
        assert answer.ack is True
        due_ms = a.job(dead.id).scheduled_ms
        assert {job.id: (job.attempt, job.scheduled_ms) for job in map(a.job, (
            before.id, dead.id, tried.id, behind.id, unordered.id, tomorrow.id, within.id, beyond.id, foreign.id
        ))} == {
            before.id: (1, None), dead.id: (2, due_ms), tried.id: (1, None), behind.id: (2, due_ms),
            unordered.id: (1, None), tomorrow.id: (2, far), within.id: (2, due_ms), beyond.id: (1, None),
            foreign.id: (1, None),
        }  # fmt: skip
        answer = await a.processor.process(behind.id, 1)
        assert (answer.ack, answer.message) == (True, "attempt 2 is the one that counts now")
        assert other.requests == []
        answer = await a.processor.process(dead.id, 1)
        assert (answer.ack, answer.message) == (True, "attempt 2 is the one that counts now")


async def test_a_job_that_somebody_else_has_by_now_is_not_put_back(
    database_url: str, redis_server: RedisServer
) -> None:
    async with (
        endpoint(answering(FAILED)) as target,
        servers(database_url, redis_server, rules=LONG) as (a, _),
    ):
        await a.fail(target.url)
        job = a.add(target.url)
        assert isinstance(a.store.take(job.id, 1), Taken)
        assert isinstance(a.store.return_(job, due_ms=1, window=3), Busy)
        assert (a.job(job.id).status, a.job(job.id).attempt) == ("IN_PROGRESS", 1)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("status", ["IN_PROGRESS", "CANCELLED"])
async def test_one_behind_that_is_claimed_or_cancelled_at_that_moment_stays_so(
    database_url: str, redis_server: RedisServer, status: str
) -> None:
    async with servers(database_url, redis_server, rules=LONG) as (a, _):
        ordered = {"msg_group": "g", "mode": "NEXT_ON_ERROR"}
        job, behind = a.add("http://h/", **ordered), a.add("http://h/", **ordered)
        with writing(a.store.engine) as connection:
            connection.execute(update(dispatch_jobs).where(dispatch_jobs.c.id == behind.id).values(status=status))
            going_back = begun(partial(a.store.return_, job, due_ms=1, window=3), name="puts back")
            with reading(a.store.engine) as looking:
                until(lambda: bool(looking.execute(_WAITING).scalar()))
        going_back.result(15)
        assert (a.job(job.id).status, a.job(job.id).attempt) == ("PENDING", 2)
        assert (a.job(behind.id).status, a.job(behind.id).attempt) == (status, 1)


async def test_one_probe_at_a_time_goes_through_and_three_that_succeed_close_it_for_both_servers(
    database_url: str, redis_server: RedisServer
) -> None:
    works, go_on = asyncio.Event(), asyncio.Event()

    async def handle(state: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await state.read_request(reader)
            if works.is_set():
                await go_on.wait()
            writer.write(OK if works.is_set() else FAILED)
            await writer.drain()

    async with endpoint(handle) as target, servers(database_url, redis_server) as (a, b):
        await a.fail(target.url)
        await b.bench.opened(origin(target))
        works.set()
        await a.bench.half_open(origin(target))
        await b.bench.half_open(origin(target))
        probe = asyncio.create_task(a.process(target.url))
        await target.received(RULES.window + 1)
        for server in (a, b):
            job, answer = await server.process(target.url)
            assert (answer.ack, job.status, job.attempt) == (True, "PENDING", 2)
            assert answer.message.endswith(f"in {PROBED_DELAY_S} s")
        assert len(target.requests) == RULES.window + 1
        go_on.set()
        assert (await probe)[0].status == "COMPLETED"
        async with asyncio.timeout(WITHIN_S):
            while await a.bench.views():
                await b.process(target.url)
        for bench in (a.bench, b.bench):
            await bench.until(lambda bench=bench: bench.admit(origin(target)) is PASS)  # type: ignore[misc]
        assert len(target.requests) == RULES.window + RULES.successes_to_close


async def test_a_probe_that_fails_spends_its_attempt_and_opens_it_again(
    database_url: str, redis_server: RedisServer
) -> None:
    async with endpoint(answering(FAILED)) as target, servers(database_url, redis_server) as (a, _):
        await a.fail(target.url)
        await a.bench.half_open(origin(target))
        job, answer = await a.process(target.url)
        assert (answer.ack, job.attempt) == (True, 2)

        async def opened_again() -> bool:
            return [view.openings for view in await a.bench.views()] == [2]

        await eventually(opened_again, within_s=WITHIN_S)


def refused(*_: object) -> Busy:
    return Busy(2**50)


def broken(*_: object) -> Busy:
    raise ValueError("out of order")


@pytest.mark.parametrize("take", [refused, broken])
async def test_a_permit_to_probe_goes_back_where_the_job_cannot_be_claimed(
    database_url: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, take: Callable[..., Busy]
) -> None:
    async with endpoint(answering(FAILED)) as target, servers(database_url, redis_server) as (a, b):
        await a.fail(target.url)
        await b.bench.opened(origin(target))
        await a.bench.half_open(origin(target))
        monkeypatch.setattr(a.store, "take", take)
        await asyncio.gather(a.process(target.url), return_exceptions=True)
        await _permitted_at_once(b, origin(target))


async def test_a_permit_to_probe_goes_back_where_the_request_is_given_up(
    database_url: str, redis_server: RedisServer
) -> None:
    silent = asyncio.Event()

    async def handle(state: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await state.read_request(reader)
            if silent.is_set():
                await reader.read()
                return
            writer.write(FAILED)

    async with endpoint(handle) as target, servers(database_url, redis_server) as (a, b):
        await a.fail(target.url)
        await b.bench.opened(origin(target))
        silent.set()
        await a.bench.half_open(origin(target))
        probe = asyncio.create_task(a.process(target.url))
        await target.received(RULES.window + 1)
        probe.cancel()
        await asyncio.wait([probe])
        await _permitted_at_once(b, origin(target))


async def test_an_address_that_egress_forbids_says_nothing_of_the_target(
    database_url: str, redis_server: RedisServer
) -> None:
    async with servers(database_url, redis_server, deny=("127.0.0.0/8", "::1")) as (a, _):
        await a.fail("http://localhost:1/")
        assert a.bench.admit("http://localhost:1") is PASS


async def _permitted_at_once(server: Server, of: str) -> None:
    """Not only when the permit has lapsed, as one does that a server held when it crashed."""
    await server.bench.permitted(of, within_s=PERMIT_MS / 2000)
