"""One message of the pipeline: what its job's turn, signer, target and claim make of it, without a database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fleet.delivery.breaker import PASS, PROBE, Open
from fleet.delivery.client import BadUrl
from fleet.delivery.reply import Reply
from fleet.delivery.signatures import Unsignable
from fleet.errors import JobStoreError, JobStoreUnavailable
from fleet.jobs.app_key import token_of
from fleet.jobs.decide import NextState
from fleet.jobs.records import Busy, Expired, Job, Over, Take, Taken
from fleet.jobs.store import MARGIN_MS
from fleet.outcome import Delivered, Failed, NotSent, Outcome, Rejected, Uncallable
from fleet.processing import process
from fleet.processing.process import Answer, Processor
from fleet.sign import Signer
from tests.clocks import HandClock
from tests.unit.delivery.noted import NotedBreakers, NotedClient
from tests.waiting import eventually

URL, ORIGIN = "http://a.example:81/orders", "http://a.example:81"
KEY = b"the app's key"
TIMEOUT_S = 20
JOB = Job(id="j1", target_url=URL, payload="{}", timeout_seconds=TIMEOUT_S)
DONE = NextState(status="COMPLETED", outcome="SUCCESS")
OPEN = Open(4_200.0)


class Scene:
    """One job, and in the place of its store what a test says."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.breakers = NotedBreakers(PASS)
        self.http = NotedClient()
        self.found: Job | None = JOB
        self.claims: Take = Taken(JOB)
        self.then: NextState | None = DONE
        self.gone: Over | None = None
        self.errors: list[JobStoreError] = []
        self.signer: Signer | Unsignable | None = None
        self.asked: list[str] = []
        self.settled: list[tuple[Outcome, int | None]] = []
        self.due_ms: list[int] = []
        self.processor = Processor(
            open_store=lambda: cast(Any, self),
            read_key=lambda: KEY,
            http=cast(Any, self.http),
            clock=self.clock,
            breakers=cast(Any, self.breakers),
            forbids_url=lambda url: "forbidden" in url,
            signers=cast(Any, SimpleNamespace(of=self._signer)),
            window=3,
        )

    async def _signer(self, pool: str) -> Signer | Unsignable | None:
        self.asked.append("signer")
        return self.signer

    # The store

    def job(self, job_id: str) -> Job | None:
        return self.found

    def take(self, job_id: str, attempt: int) -> Take:
        self.asked.append("claim")
        return self.claims

    def return_(self, job: Job, *, due_ms: int, window: int) -> Over | None:
        self.due_ms.append(due_ms - self.clock.now_ms)
        return self.gone

    def settle(self, job: Job, outcome: Outcome, *, started_ms: int, status_code: int | None) -> NextState | None:
        if self.errors:
            raise self.errors.pop()
        self.settled.append((outcome, status_code))
        return self.then

    def close(self) -> None:
        pass

    # What a test does

    async def process(self, attempt: int = 1) -> Answer:
        async with asyncio.timeout(5):
            return await self.processor.process("j1", attempt)

    async def sent(self) -> asyncio.Task[Answer]:
        """It is under way, and its target has not answered yet."""
        task, there = asyncio.ensure_future(self.process()), len(self.http.sent) + 1
        await eventually(lambda: len(self.http.sent) >= there)
        return task

    def has(self, **changes: Any) -> None:
        """The job in the store is like this."""
        self.found = replace(JOB, **changes)
        self.claims = Taken(self.found)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    yield scene
    await scene.processor.close()


# Before the claim ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "there is no such job"),
        (replace(JOB, status="COMPLETED"), "the job is COMPLETED"),
        (replace(JOB, attempt=2), "attempt 2 is the one that counts now"),
    ],
)
async def test_a_message_whose_turn_is_over_is_acked_and_nobody_is_asked(
    scene: Scene, found: Job | None, message: str
) -> None:
    scene.found = found
    assert await scene.process() == Answer(True, message)
    assert (scene.asked, scene.breakers.notes, scene.processor.counts) == ([], [], {"refused.over": 1})


async def test_what_cannot_be_signed_asks_no_breaker_and_spends_no_attempt(scene: Scene) -> None:
    scene.signer = Unsignable("no secret")
    with pytest.raises(JobStoreError, match="no secret"):
        await scene.process()
    assert (scene.asked, scene.breakers.notes) == (["signer"], [])


@pytest.mark.parametrize(
    ("attempt", "shut", "again_s"),
    [
        (1, Open(100.0), 1),
        (2, Open(100.0), 2),
        (3, Open(100.0), 5),
        (9, Open(100.0), 5),
        (1, Open(4_200.0), 5),
        (1, Open(100.0, probed=True), 5),
    ],
)
async def test_a_job_whose_target_is_shut_goes_back_for_a_while_that_grows_with_its_attempts(
    scene: Scene, attempt: int, shut: Open, again_s: int
) -> None:
    scene.has(attempt=attempt)
    scene.breakers.admits = [shut]
    answer = await scene.process(attempt)
    assert answer == Answer(True, f"the circuit breaker of {ORIGIN} is open: it goes again in {again_s} s")
    assert (scene.asked, scene.due_ms) == (["signer"], [again_s * 1000])
    assert scene.processor.counts == {"refused.breaker": 1}


async def test_a_job_that_is_gone_before_it_can_go_back_says_so(scene: Scene) -> None:
    scene.breakers.admits, scene.gone = [OPEN], Over("the job is CANCELLED")
    assert await scene.process() == Answer(True, "the job is CANCELLED")
    assert scene.processor.counts == {"refused.over": 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"expires_ms": HandClock().now_ms},
        {"status": "IN_PROGRESS", "claimed_until_ms": HandClock().now_ms + 1},
        {"target_url": "http://forbidden/"},
    ],
    ids=["late", "busy", "forbidden"],
)
async def test_a_job_that_will_hardly_be_sent_asks_for_no_permit(scene: Scene, changes: dict[str, Any]) -> None:
    scene.has(**changes)
    scene.breakers.admits, scene.claims = [PROBE], Expired()
    await scene.process()
    assert scene.breakers.notes == []


# The claim -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "answer", "counted"),
    [
        (Busy(HandClock().now_ms + 4_001), Answer(False, "it is being delivered", 5), "refused.busy"),
        (Busy(0), Answer(False, "it is being delivered", 1), "refused.busy"),
        (Busy(2**50), Answer(False, "it is being delivered", 43_200), "refused.busy"),
        (Expired(), Answer(True, "the job has expired"), "refused.expired"),
        (Over("the job is ERROR"), Answer(True, "the job is ERROR"), "refused.over"),
    ],
)
async def test_what_is_not_claimed_is_not_sent_and_its_permit_goes_back(
    scene: Scene, claim: Take, answer: Answer, counted: str
) -> None:
    scene.breakers.admits, scene.claims = [PROBE], claim
    assert await scene.process() == answer
    assert (scene.http.sent, scene.processor.counts) == ([], {counted: 1})
    assert scene.breakers.notes == [f"admit {ORIGIN}", "permit back"]


# Delivery ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [DONE, NextState(status="PENDING", outcome="ERROR_PROCESS", error="HTTP 500")])
async def test_the_router_is_told_ack_whatever_the_target_answered(scene: Scene, ends: NextState) -> None:
    scene.then = ends
    task = await scene.sent()
    assert (scene.http.sent[0]["url"], scene.http.sent[0]["timeout_ms"]) == (URL, TIMEOUT_S * 1000)
    scene.http.answer(Reply(204, b"", 0.1))
    assert await task == Answer(True, ends.status)
    assert (scene.settled, scene.processor.counts) == ([(Delivered(204), 204)], {f"attempt.{ends.outcome}": 1})


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"target_url": "http://forbidden/"}, NotSent("egress rules forbid http://forbidden", warn=True)),
        ({"msg_group": "a\r\nX: y"}, Rejected(0, "its id or group holds what no header may hold")),
    ],
)
async def test_what_may_not_be_sent_is_an_attempt_that_failed(
    scene: Scene, changes: dict[str, Any], outcome: Outcome
) -> None:
    scene.has(**changes)
    assert (await scene.process()).ack
    assert (scene.settled, scene.http.sent) == ([(outcome, None)], [])


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (BadUrl("too long"), Uncallable("not a URL that can be called: too long")),
        (RuntimeError("closed"), Failed("the request cannot be made (RuntimeError: closed)", unexpected=True)),
    ],
)
async def test_what_cannot_be_sent_is_an_attempt_that_failed(scene: Scene, error: Exception, outcome: Outcome) -> None:
    scene.http.error = error
    assert (await scene.process()).ack
    assert scene.settled == [(outcome, None)]


async def test_a_claim_that_somebody_else_has_by_now_is_over(scene: Scene) -> None:
    scene.then = None
    task = await scene.sent()
    scene.http.answer(Reply(200, b"", 0.1))
    assert await task == Answer(True, "somebody else has taken it")
    assert scene.processor.counts == {"refused.lapsed": 1}


async def test_what_a_process_slept_through_is_aborted_and_nothing_is_written(scene: Scene) -> None:
    task = await scene.sent()
    scene.clock.now_ms += TIMEOUT_S * 1000 + MARGIN_MS
    scene.http.before_io()
    assert scene.http.transfers[0].is_aborted, "before any of it is written"
    assert await task == Answer(False, "the time it was taken for is over", 1)
    assert scene.settled == []


async def test_a_shorter_sleep_aborts_nothing(scene: Scene) -> None:
    task = await scene.sent()
    scene.clock.now_ms += TIMEOUT_S * 1000 + MARGIN_MS - 1
    scene.http.before_io()
    assert not scene.http.transfers[0].is_aborted
    scene.http.answer(Reply(200, b"", 0.1))
    assert (await task).ack


async def test_a_claim_that_took_too_long_to_get_leaves_no_time_to_send(scene: Scene) -> None:
    def slowly(job_id: str, attempt: int) -> Take:
        scene.clock.now_ms += MARGIN_MS
        return Taken(JOB)

    vars(scene).update(take=slowly)
    assert await scene.process() == Answer(False, "the time it was taken for is over", 1)
    assert scene.http.sent == []


@pytest.mark.parametrize(("passes_ms", "recorded"), [(0, True), (TIMEOUT_S * 1000 + MARGIN_MS, False)])
async def test_what_the_target_has_is_recorded_when_the_store_is_back_while_the_claim_lasts(
    scene: Scene, passes_ms: int, recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_SETTLE_AGAIN_S", 0.0)
    scene.errors = [JobStoreUnavailable("away")] * 3
    task = await scene.sent()
    scene.clock.now_ms += passes_ms
    scene.http.answer(Reply(200, b"", 0.1))
    if recorded:
        assert (await task).ack
    else:
        with pytest.raises(JobStoreUnavailable):
            await task
    assert len(scene.settled) == recorded


# Tokens --------------------------------------------------------------------------------------------


async def test_a_token_of_another_key_is_complained_of_once_a_minute(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    assert await scene.processor.is_token("j1", token_of(KEY, "j1"))
    for passed_ms, complaints in [(0, 1), (59_999, 1), (1, 2)]:
        scene.clock.now_ms += passed_ms
        assert not await scene.processor.is_token("j1", token_of(b"another", "j1"))
        assert len(caplog.messages) == complaints
