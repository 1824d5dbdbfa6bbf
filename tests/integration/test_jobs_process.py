"""A message of the pipeline, processed: real databases, a real endpoint, the workers' HTTP client."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import update

from fleet.alarms import Alarms
from fleet.config.router import PoolConfig
from fleet.delivery.signatures import Signatures
from fleet.errors import JobStoreError, JobStoreUnavailable
from fleet.jobs.app_key import token_of
from fleet.jobs.database import writing
from fleet.jobs.schema import dispatch_jobs
from fleet.jobs.store import MARGIN_MS
from fleet.processing.process import Answer
from fleet.processing.signers import JobSigners
from fleet.sign import Signer
from fleet.state.registry import Registry
from fleet.state.warnings import Warnings
from tests.integration.processing import FAILED, KEY, OK, Processing, processing, target
from tests.unit.delivery.endpoints import Endpoint, answering

BUSY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 77\r\nContent-Length: 0\r\n\r\n"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
NOT_NOW = b"HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\n" + b'{"ack":false,"delaySeconds":40}'
SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef").decode()


@pytest.fixture
async def jobs(database_url: str) -> AsyncIterator[Processing]:
    async with processing(database_url) as jobs:
        yield jobs


def head_of(request: bytes) -> dict[str, str]:
    lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}


async def silent(state: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await state.read_request(reader)
    await reader.read()


# Delivery ------------------------------------------------------------------------------------------


async def test_the_target_receives_the_payload_as_it_was_written_and_says_who_it_is(jobs: Processing) -> None:
    async with target(jobs, answering(OK)) as server:
        job = jobs.add(sequence=7, msg_group="grüße")
        assert (await jobs.processor.process(job.id, 1)).ack is True
        (request,) = server.requests
        assert request.startswith(b"POST /hook HTTP/1.1\r\n")
        assert request.endswith(b'\r\n\r\n{"n": 1.50}')
        head = head_of(request)
        assert head["content-type"] == "application/json"
        assert (head["fleet-job"], head["fleet-group"]) == (job.id, "grüße")
        assert (head["fleet-sequence"], head["fleet-attempt"]) == ("7", "1")
        assert "authorization" not in head and "webhook-signature" not in head
    assert jobs.job(job.id).status == "COMPLETED"


@pytest.mark.parametrize("status", ["PENDING", "QUEUED"])
async def test_a_message_may_come_before_its_epoch_is_marked(jobs: Processing, status: str) -> None:
    async with target(jobs, answering(OK)) as server:
        job = jobs.add()
        jobs.set(job, status=status)
        await jobs.processor.process(job.id, 1)
        assert len(server.requests) == 1


async def test_a_payload_of_a_mebibyte_arrives_whole(jobs: Processing) -> None:
    payload = '"' + "x" * (1024 * 1024 - 2) + '"'
    async with target(jobs, answering(OK)) as server:
        job = jobs.add(payload=payload)
        await jobs.processor.process(job.id, 1)
        assert server.requests[0].endswith(payload.encode())
    assert jobs.job(job.id).status == "COMPLETED"


@pytest.mark.parametrize(
    ("answer", "status", "delay_s", "code", "outcome"),
    [
        (OK, "COMPLETED", None, 200, "SUCCESS"),
        (EMPTY, "COMPLETED", None, 204, "SUCCESS"),
        (FAILED, "PENDING", 5, 500, "ERROR_PROCESS"),
        (NOT_FOUND, "PENDING", 5, 404, "ERROR_CONFIG"),
        (BUSY, "PENDING", 77, 429, "ERROR_PROCESS"),
        (NOT_NOW, "PENDING", 40, 200, "ERROR_PROCESS"),
    ],
)
async def test_the_router_is_told_ack_whatever_the_target_answered(
    jobs: Processing, answer: bytes, status: str, delay_s: int | None, code: int, outcome: str
) -> None:
    async with target(jobs, answering(answer)):
        job = jobs.add()
        assert (await jobs.processor.process(job.id, 1)).ack is True
    after = jobs.job(job.id)
    assert after.status == status
    assert after.scheduled_ms == (None if delay_s is None else jobs.clock.now_ms + delay_s * 1000)
    assert after.attempt == (1 if status == "COMPLETED" else 2)
    (attempt,) = jobs.store.attempts(job.id)
    assert (attempt.attempt, attempt.status_code, attempt.outcome) == (1, code, outcome)
    assert (attempt.target_url, attempt.msg_group, attempt.pool) == (job.target_url, "g", "DEFAULT-POOL")


async def test_nobody_at_the_target_is_an_attempt_that_failed(jobs: Processing) -> None:
    job = jobs.add(target_url="http://127.0.0.1:1/", max_retries=0)
    assert (await jobs.processor.process(job.id, 1)).ack is True
    after = jobs.job(job.id)
    assert after.status == "ERROR" and "no connection" in str(after.last_error)
    assert jobs.store.attempts(job.id)[0].status_code is None


async def test_a_target_that_does_not_answer_in_the_jobs_time_has_failed(jobs: Processing) -> None:
    async with target(jobs, silent):
        job = jobs.add(timeout_seconds=1)
        assert (await jobs.processor.process(job.id, 1)).ack is True
    assert "deadline" in str(jobs.job(job.id).last_error)


@pytest.mark.parametrize(
    "given",
    [
        {"target_url": "http://[::1"},
        {"target_url": "nonsense://h/"},
        {"target_url": "http://h/\r\nX: y"},
        {"timeout_seconds": 0},
        {"msg_group": "a\r\nX-Evil: 1"},
    ],
)
async def test_a_row_of_another_program_that_cannot_be_sent_fails_and_hurts_nobody(
    jobs: Processing, given: dict[str, Any]
) -> None:
    async with target(jobs, answering(OK)) as server:
        job = jobs.add(**given, max_retries=0)
        assert (await jobs.processor.process(job.id, 1)).ack is True
        assert server.requests == []
    assert jobs.job(job.id).status == "ERROR"


@pytest.mark.parametrize("deny", [("localhost",), ("127.0.0.0/8", "::1")])
async def test_egress_rules_hold_for_jobs_by_name_and_by_address(database_url: str, deny: tuple[str, ...]) -> None:
    async with processing(database_url, deny=deny) as jobs, target(jobs, answering(OK)) as to:
        job = jobs.add(target_url=f"http://localhost:{to.port}/", max_retries=0)
        assert (await jobs.processor.process(job.id, 1)).ack is True
        assert jobs.job(job.id).status == "ERROR"
        assert to.connections == 0


# Signatures ----------------------------------------------------------------------------------------


def _pool(code: str, secret: str | None = None, file: str | None = None) -> PoolConfig:
    return PoolConfig(code=code, concurrency=1, capacity=50, secret=secret, secret_file=file)


async def test_a_webhook_is_signed_with_the_secret_of_its_pool_at_every_attempt(jobs: Processing) -> None:
    await jobs.pools(_pool("P", SECRET), _pool("DEFAULT-POOL"))
    async with target(jobs, answering(FAILED)) as server:
        job = jobs.add(pool="P")
        for attempt in (1, 2):
            await jobs.processor.process(job.id, attempt)
        for request in server.requests:
            head, body = head_of(request), request.partition(b"\r\n\r\n")[2]
            assert head["webhook-id"] == job.id
            signed = f"{job.id}.{head['webhook-timestamp']}.".encode() + body
            good = base64.b64encode(hmac.new(b"0123456789abcdef", signed, hashlib.sha256).digest()).decode()
            assert head["webhook-signature"] == f"v1,{good}"
        assert len(server.requests) == 2


async def test_a_code_that_no_pool_has_is_signed_as_the_pool_that_delivers_it(jobs: Processing) -> None:
    await jobs.pools(_pool("DEFAULT-POOL", SECRET))
    async with target(jobs, answering(OK)) as server:
        await jobs.processor.process(jobs.add(pool="NOBODY").id, 1)
        assert "webhook-signature" in head_of(server.requests[0])


async def test_a_job_that_names_no_pool_is_signed_as_the_one_it_is_sent_through(jobs: Processing) -> None:
    await jobs.pools(_pool("MAIN", SECRET), _pool("DEFAULT-POOL"))
    signers = JobSigners(
        registry=Registry(jobs.redis),
        signatures=Signatures(client=jobs.redis, alarms=Alarms(warnings=Warnings(jobs.redis), source="server")),
        clock=jobs.clock,
        default_pool="MAIN",
    )
    assert isinstance(await signers.of("DEFAULT-POOL"), Signer)
    assert isinstance(await signers.of("MAIN"), Signer)
    assert await signers.of("NOBODY") is None


async def test_what_cannot_be_signed_is_not_sent_and_spends_no_attempt(jobs: Processing) -> None:
    await jobs.pools(_pool("P", file="/nowhere/secret"))
    async with target(jobs, answering(OK)) as server:
        job = jobs.add(pool="P")
        with pytest.raises(JobStoreError, match="pool P"):
            await jobs.processor.process(job.id, 1)
        assert server.requests == []
    assert (jobs.job(job.id).status, jobs.job(job.id).attempt) == ("PENDING", 1)


# What is not delivered -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [{"status": "COMPLETED"}, {"status": "ERROR"}, {"status": "CANCELLED"}, {"attempt": 2}, {"expires_ms": 5}],
)
async def test_a_late_copy_a_finished_job_and_an_expired_one_are_acked_and_not_delivered(
    jobs: Processing, values: dict[str, Any]
) -> None:
    async with target(jobs, answering(OK)) as server:
        job = jobs.add()
        jobs.set(job, **values)
        assert (await jobs.processor.process(job.id, 1)).ack is True
        assert (await jobs.processor.process("nobody", 1)).ack is True
        assert server.requests == []
    assert jobs.store.attempts(job.id) == []


async def test_a_second_message_of_a_job_under_way_is_put_off_for_the_time_that_is_left(jobs: Processing) -> None:
    go_on = asyncio.Event()

    async def handle(state: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await state.read_request(reader)
        await go_on.wait()
        writer.write(OK)
        await writer.drain()

    async with target(jobs, handle) as server:
        job = jobs.add(timeout_seconds=20)
        first = asyncio.create_task(jobs.processor.process(job.id, 1))
        await server.received(1)
        jobs.clock.now_ms += 5_500
        assert await jobs.processor.process(job.id, 1) == Answer(False, "it is being delivered", 30)
        go_on.set()
        assert (await first).ack is True
        assert len(server.requests) == 1
    assert jobs.job(job.id).status == "COMPLETED"


async def test_attempts_and_refusals_are_counted_for_the_heartbeat(jobs: Processing) -> None:
    async with target(jobs, answering(OK)):
        first = jobs.add()
        for _ in range(2):
            await jobs.processor.process(first.id, 1)
    async with target(jobs, answering(FAILED)):
        await jobs.processor.process(jobs.add().id, 1)
    jobs.set(first, status="IN_PROGRESS", claimed_until_ms=2**50)
    await jobs.processor.process(first.id, 1)
    assert jobs.processor.counts == {
        "attempt.SUCCESS": 1, "attempt.ERROR_PROCESS": 1, "refused.over": 1, "refused.busy": 1,
    }  # fmt: skip


async def test_two_messages_of_a_job_at_once_are_one_delivery(jobs: Processing) -> None:
    async with target(jobs, answering(OK)) as server:
        for _ in range(20):
            job, before = jobs.add(), len(server.requests)
            await asyncio.gather(*(jobs.processor.process(job.id, 1) for _ in range(3)))
            assert len(server.requests) == before + 1
            assert len(jobs.store.attempts(job.id)) == 1


async def test_a_job_whose_server_died_is_delivered_again_once_its_claim_is_over(jobs: Processing) -> None:
    async with target(jobs, answering(OK)) as server:
        job = jobs.add(timeout_seconds=2)
        jobs.store.take(job.id, 1)  # by a server that died then
        answer = await jobs.processor.process(job.id, 1)
        assert answer == Answer(False, "it is being delivered", 2 + MARGIN_MS // 1000)
        assert server.requests == []
        jobs.clock.now_ms += answer.delay_s * 1000
        assert (await jobs.processor.process(job.id, 1)).ack is True
        assert len(server.requests) == 1
    assert jobs.job(job.id).status == "COMPLETED"


async def test_a_server_that_hung_past_its_claim_writes_nothing_any_more(jobs: Processing) -> None:
    async with target(jobs, silent) as server:
        job = jobs.add(timeout_seconds=20)
        first = asyncio.create_task(jobs.processor.process(job.id, 1))
        await server.received(1)
        jobs.clock.now_ms += 20_000 + MARGIN_MS
        jobs.http.before_io()  # the first thing that a loop does which wakes
        assert (await first).ack is False
    assert jobs.store.attempts(job.id) == []
    assert jobs.job(job.id).status == "IN_PROGRESS"


# Trouble -------------------------------------------------------------------------------------------


async def test_the_loop_goes_on_while_the_database_makes_us_wait(
    jobs: Processing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with target(jobs, answering(OK)) as server:
        job = jobs.add()
        locked, let_go = threading.Event(), threading.Event()

        def hold() -> None:
            with writing(jobs.store.engine) as connection:
                connection.execute(update(dispatch_jobs).where(dispatch_jobs.c.id == job.id).values(sequence=1))
                locked.set()
                let_go.wait(20)

        holder = threading.Thread(target=hold)
        holder.start()
        await asyncio.get_running_loop().run_in_executor(None, locked.wait)
        take, taking = jobs.store.take, threading.Event()

        def tell_and_take(*given: Any) -> Any:
            taking.set()
            return take(*given)

        monkeypatch.setattr(jobs.store, "take", tell_and_take)
        waiting = asyncio.create_task(jobs.processor.process(job.id, 1))
        await asyncio.get_running_loop().run_in_executor(None, taking.wait)
        try:
            for _ in range(3):
                answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                jobs.http.post(server.url, [], b"{}", timeout_ms=5000, done=answered.set_result)
                assert (await answered).status == 200
            assert not waiting.done()
        finally:
            let_go.set()
            holder.join()
        assert (await waiting).ack is True
    assert jobs.job(job.id).status == "COMPLETED"


async def test_an_outcome_is_recorded_though_the_database_was_away_when_it_came(
    jobs: Processing, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, failures = jobs.store.settle, [JobStoreUnavailable("away")] * 2

    def sometimes(*given: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return settle(*given, **named)

    monkeypatch.setattr(jobs.store, "settle", sometimes)
    monkeypatch.setattr("fleet.processing.process._SETTLE_AGAIN_S", 0.0)
    async with target(jobs, answering(OK)) as server:
        job = jobs.add()
        assert (await jobs.processor.process(job.id, 1)).ack is True
        assert len(server.requests) == 1
    assert jobs.job(job.id).status == "COMPLETED"


async def test_a_token_is_of_one_job_and_one_key(jobs: Processing) -> None:
    good: Callable[[str, str], Awaitable[bool]] = jobs.processor.is_token
    assert await good("job-1", token_of(KEY, "job-1"))
    for wrong in (token_of(KEY, "job-2"), token_of(b"another key", "job-1"), "", "ü", token_of(KEY, "job-1").upper()):
        assert not await good("job-1", wrong)
