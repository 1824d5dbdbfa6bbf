"""What people are shown of the job store, whoever wrote into it."""

from __future__ import annotations

import pytest

from fleet.jobs.records import Attempt, Event, Job, Subscription
from fleet.jobs.shown import attempt_json, content, event_json, job_json, moment, subscription_json

WITH_PASSWORD = "https://me:s3cr/et@host/hook"
JOB = Job(id="j1", target_url=WITH_PASSWORD, payload='{"a":1}', created_ms=0, queued_ms=1_700_000_000_123)


def test_a_job_is_shown_without_passwords_and_with_its_payload_only_if_that_was_asked_for() -> None:
    shown = job_json(JOB)
    assert shown["targetUrl"] == "https://host/hook"
    assert "payload" not in shown
    assert job_json(JOB, payload=True) == {**shown, "payload": {"a": 1}}


def test_a_subscription_shows_no_password_either_and_its_switch_as_one() -> None:
    found = subscription_json(
        Subscription(
            name="s", pattern="*", target_url=WITH_PASSWORD, mode="IMMEDIATE", pool="P", created_ms=0, enabled=1
        )
    )
    assert (found["targetUrl"], found["enabled"]) == ("https://host/hook", True)


def test_moments_are_utc_with_milliseconds_and_none_is_none() -> None:
    shown = job_json(JOB)
    assert shown["createdAt"] == "1970-01-01T00:00:00.000Z"
    assert shown["queuedAt"] == "2023-11-14T22:13:20.123Z"
    assert shown["completedAt"] is None


@pytest.mark.parametrize("ms", [2**62, -(2**62), 2**80, 253_402_300_800_000])
def test_a_number_that_cannot_be_a_date_is_shown_as_it_is(ms: int) -> None:
    assert moment(ms) == str(ms)


@pytest.mark.parametrize("payload", ["not JSON", "{", "[" * 100_000, ""])
def test_a_payload_that_cannot_be_decoded_is_shown_as_it_is(payload: str) -> None:
    assert content(payload) == payload


def test_an_event_says_whether_it_was_fanned_out() -> None:
    event = Event(id="e", type="t", payload="7", created_ms=0)
    assert (event_json(event)["payload"], event_json(event)["fannedOut"]) == (7, False)


def test_an_attempt_names_no_target() -> None:
    attempt = Attempt(
        job_id="j", attempt=2, started_ms=0, ended_ms=1500, status_code=None, outcome="TIMEOUT", error="slow",
        target_url=WITH_PASSWORD, msg_group=None, pool="P",
    )  # fmt: skip
    assert attempt_json(attempt) == {
        "attempt": 2,
        "startedAt": "1970-01-01T00:00:00.000Z",
        "endedAt": "1970-01-01T00:00:01.500Z",
        "statusCode": None,
        "outcome": "TIMEOUT",
        "error": "slow",
    }
