"""What follows from an outcome."""

from __future__ import annotations

import pytest

from fleet.jobs.decide import RETRY_DELAYS_S, NextState, decide
from fleet.jobs.records import Job
from fleet.outcome import Delivered, Failed, Outcome, Refenced, Rejected, Unreachable

NOW_MS = 1_000_000


def job(**given: int) -> Job:
    return Job(id="j", target_url="http://h/", payload="1", **given)  # type: ignore[arg-type]


FAILURES: list[tuple[Outcome, str]] = [
    (Failed("why"), "ERROR_PROCESS"),
    (Rejected(404, "why"), "ERROR_CONFIG"),
    (Unreachable("why"), "ERROR_CONNECTION"),
    (Refenced(), "FENCED"),
]


@pytest.mark.parametrize(("outcome", "name"), FAILURES)
def test_whatever_failed_is_tried_again_while_there_are_retries_and_is_an_error_then(
    outcome: Outcome, name: str
) -> None:
    for failed_before, delay_s in enumerate([5, 15, 30]):
        then = decide(job(), outcome, failed_before=failed_before, now_ms=NOW_MS)
        assert (then.status, then.outcome) == ("PENDING", name)
        assert then.scheduled_ms == NOW_MS + delay_s * 1000
        assert then.error
    last = decide(job(), outcome, failed_before=3, now_ms=NOW_MS)
    assert (last.status, last.outcome, last.scheduled_ms) == ("ERROR", name, None)


def test_a_job_without_retries_is_an_error_at_once() -> None:
    assert decide(job(max_retries=0), Failed("x"), failed_before=0, now_ms=NOW_MS).status == "ERROR"


def test_delays_stay_at_the_longest() -> None:
    then = decide(job(max_retries=50), Failed("x"), failed_before=40, now_ms=NOW_MS)
    assert then.scheduled_ms == NOW_MS + RETRY_DELAYS_S[-1] * 1000


def test_a_target_that_asks_for_more_time_gets_it_and_one_that_asks_for_less_does_not() -> None:
    for asked_s, delay_s in ((1, 15), (600, 600)):
        then = decide(job(), Failed("x", retry_s=asked_s), failed_before=1, now_ms=NOW_MS)
        assert then.scheduled_ms == NOW_MS + delay_s * 1000


def test_a_retry_that_would_come_too_late_is_given_up_at_once() -> None:
    for expires_ms, status in ((NOW_MS + 5000, "EXPIRED"), (NOW_MS + 5001, "PENDING")):
        then = decide(job(expires_ms=expires_ms), Failed("why"), failed_before=0, now_ms=NOW_MS)
        assert (then.status, then.error) == (status, "why")


def test_a_delivery_completes_even_what_has_expired_meanwhile() -> None:
    then = decide(job(expires_ms=NOW_MS - 1), Delivered(), failed_before=9, now_ms=NOW_MS)
    assert then == NextState(status="COMPLETED", outcome="SUCCESS")
