"""Who may deliver a job of the store, and what comes of it: who wins a race, on both databases."""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest

from fleet.jobs.records import Busy, Expired, Over, Taken
from fleet.jobs.store import MARGIN_MS, JobStore
from fleet.outcome import Delivered, Failed
from tests.clocks import HandClock
from tests.integration.job_store import added, at_once, claimed, job, job_of, set_values

# Claims --------------------------------------------------------------------------------------------


def test_of_two_claimers_of_one_job_one_wins(store: JobStore) -> None:
    for one in store.add_jobs([job() for _ in range(40)]).ids:
        won, lost = sorted(
            at_once([partial(store.take, one, 1)] * 2), key=lambda claim: isinstance(claim, Busy)
        )  # fmt: skip
        assert isinstance(won, Taken) and isinstance(lost, Busy)
        assert lost.until_ms == won.job.claimed_until_ms


def test_of_two_claimers_of_a_lapsed_claim_one_wins(store: JobStore, clock: HandClock) -> None:
    jobs = [claimed(store, added(store)) for _ in range(40)]
    clock.now_ms += 10**6
    for one in jobs:
        claims = at_once([partial(store.take, one.id, 1)] * 2)
        assert sorted(type(claim).__name__ for claim in claims) == ["Busy", "Taken"]


@pytest.mark.parametrize("status", ["PENDING", "QUEUED"])
def test_a_job_that_waits_is_claimed_for_its_timeout_and_a_margin(
    store: JobStore, clock: HandClock, status: str
) -> None:
    one = added(store, timeout_seconds=7)
    set_values(store, one, status=status)
    job = claimed(store, one)
    assert (job.status, job.claimed_until_ms) == ("IN_PROGRESS", clock.now_ms + 7_000 + MARGIN_MS)


def test_a_claim_is_somebody_elses_until_its_time_is_over_and_then_anybodys(store: JobStore, clock: HandClock) -> None:
    first = claimed(store, added(store))
    assert first.claimed_until_ms is not None
    clock.now_ms = first.claimed_until_ms - 1
    assert store.take(first.id, 1) == Busy(first.claimed_until_ms)
    clock.now_ms += 1
    second = claimed(store, first)
    assert store.settle(first, Delivered(), started_ms=1, status_code=200) is None
    found = job_of(store, first.id)
    assert found.status == "IN_PROGRESS"
    assert store.settle(second, Delivered(), started_ms=2, status_code=200) is not None
    assert [attempt.started_ms for attempt in store.attempts(first.id)] == [1, 2]


@pytest.mark.parametrize("status", ["COMPLETED", "ERROR", "EXPIRED", "CANCELLED"])
def test_what_is_finished_is_not_claimed(store: JobStore, status: str) -> None:
    one = added(store)
    set_values(store, one, status=status)
    assert store.take(one.id, 1) == Over(f"the job is {status}")


def test_another_attempt_than_the_one_that_counts_is_not_claimed(store: JobStore) -> None:
    one = added(store)
    set_values(store, one, attempt=3)
    for attempt in (1, 2, 4):
        assert isinstance(store.take(one.id, attempt), Over)
    assert isinstance(store.take("nobody", 1), Over)


def test_what_has_expired_is_not_claimed_and_says_so(store: JobStore, clock: HandClock) -> None:
    one = added(store, expires_ms=clock.now_ms)
    assert isinstance(store.take(one.id, 1), Expired)
    found = job_of(store, one.id)
    assert (found.status, found.completed_ms) == ("EXPIRED", clock.now_ms)
    assert isinstance(store.take(added(store, expires_ms=clock.now_ms + 1).id, 1), Taken)


# Outcomes ------------------------------------------------------------------------------------------


def test_a_job_that_fails_is_tried_again_after_growing_times_and_ends_in_error(
    store: JobStore, clock: HandClock
) -> None:
    one = added(store, max_retries=6)
    delays = []
    for _ in range(6):
        then = store.settle(
            claimed(store, one), Failed("HTTP 500", status=500), started_ms=clock.now_ms, status_code=500
        )  # fmt: skip
        assert then is not None and then.status == "PENDING" and then.scheduled_ms is not None
        delays.append((then.scheduled_ms - clock.now_ms) // 1000)
        again = store.job(one.id)
        assert again is not None and again.attempt == one.attempt + 1
        assert (again.scheduled_ms, again.queued_ms, again.claimed_until_ms) == (then.scheduled_ms, None, None)
        one = again
        clock.now_ms += 1
    assert delays == [5, 15, 30, 60, 120, 120]
    store.settle(claimed(store, one), Failed("HTTP 503", status=503), started_ms=clock.now_ms, status_code=503)
    found = job_of(store, one.id)
    assert (found.status, found.attempt, found.last_error) == ("ERROR", 7, "HTTP 503")
    assert [(a.attempt, a.status_code, a.outcome) for a in store.attempts(one.id)] == [
        (n, 503 if n == 7 else 500, "ERROR_PROCESS") for n in range(1, 8)
    ]


def test_an_attempt_that_got_lost_on_its_way_spends_no_retry(store: JobStore) -> None:
    one = added(store, max_retries=1)
    set_values(store, one, attempt=5)
    one = dataclasses.replace(one, attempt=5)
    then = store.settle(claimed(store, one), Failed("HTTP 500"), started_ms=1, status_code=500)
    assert then is not None and then.status == "PENDING"


def test_a_failure_that_two_servers_tell_of_spends_one_retry(store: JobStore, clock: HandClock) -> None:
    first = claimed(store, added(store, max_retries=1))
    clock.now_ms += 10**6
    second = claimed(store, first)
    assert store.settle(first, Failed("HTTP 500"), started_ms=1, status_code=500) is None
    then = store.settle(second, Failed("HTTP 500"), started_ms=2, status_code=500)
    assert then is not None and then.status == "PENDING"


def test_a_lost_attempt_that_turns_out_to_be_delivered_spends_no_retry(store: JobStore) -> None:
    """It was put back for the next attempt before its server told."""
    first = claimed(store, added(store, max_retries=1))
    set_values(store, first, status="PENDING", attempt=2, claimed_until_ms=None)
    assert store.settle(first, Delivered(), started_ms=1, status_code=200) is None
    second = claimed(store, job_of(store, first.id))
    then = store.settle(second, Failed("HTTP 500"), started_ms=2, status_code=500)
    assert then is not None and then.status == "PENDING"


def test_a_job_that_was_delivered_is_completed(store: JobStore, clock: HandClock) -> None:
    one = added(store)
    store.settle(claimed(store, one), Delivered(), started_ms=clock.now_ms, status_code=200)
    found = job_of(store, one.id)
    assert (found.status, found.completed_ms, found.claimed_until_ms) == ("COMPLETED", clock.now_ms, None)
    (attempt,) = store.attempts(one.id)
    assert (attempt.outcome, attempt.status_code, attempt.error) == ("SUCCESS", 200, None)


def test_the_same_settlement_twice_counts_once(store: JobStore) -> None:
    one = claimed(store, added(store))
    done = at_once([lambda: store.settle(one, Failed("x"), started_ms=1, status_code=None)] * 2)
    assert sorted(then is None for then in done) == [False, True]
    found = job_of(store, one.id)
    assert found.attempt == 2 and len(store.attempts(one.id)) == 1
