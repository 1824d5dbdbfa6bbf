"""The webhook of a job: its headers, and what the target's answer means."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.delivery.reply import Reply
from fleet.jobs.records import Job
from fleet.outcome import Delivered, Failed, Outcome, Refenced, Rejected, Unreachable
from fleet.processing.webhook import outcome_of, request_headers

JSON = ["Content-Type: application/json", "Accept: application/json"]


def job(**given: Any) -> Job:
    return Job(**{"id": "j1", "target_url": "http://a", "payload": "{}", "sequence": 7, "attempt": 2, **given})


@pytest.mark.parametrize(("group", "more"), [("größe", ["Fleet-Group: größe"]), (None, []), ("", [])])
def test_the_headers_name_the_job_and_its_attempt_and_its_group_if_it_has_one(
    group: str | None, more: list[str]
) -> None:
    own = ["Idempotency-Key: j1", "Fleet-Job: j1", "Fleet-Sequence: 7", "Fleet-Attempt: 2"]
    assert request_headers(job(msg_group=group)) == [*JSON, *own, *more]


@pytest.mark.parametrize("given", [{"id": "j\r\nX: y"}, {"msg_group": "g\nX: y"}, {"msg_group": "g\0"}])
def test_what_would_write_headers_of_its_own_is_not_sent(given: dict[str, str]) -> None:
    assert request_headers(job(**given)) is None


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply(200, b"", 0.1), Delivered()),
        (Reply(200, b'{"ack":false}', 0.1), Failed("not acknowledged", status=200)),
        (Reply(201, b'{"ack":false}', 0.1), Delivered(201)),
        (Reply(299, b"", 0.1, encoded=True, oversize=True), Delivered(299)),
        (Reply(204, b"", 0.1, error="RESET"), Unreachable("connection lost")),
        (Reply(300, b"", 0.1), Failed("unexpected HTTP 300", status=300)),
        (Reply(404, b"", 0.1), Rejected(404, "HTTP 404")),
        (Reply(412, b"", 0.1, fenced=True), Refenced()),
    ],
    ids=lambda value: f"{value.status} {value.error or ''}" if isinstance(value, Reply) else "",
)
def test_every_2xx_is_a_yes_and_all_else_is_as_for_any_delivery(reply: Reply, outcome: Outcome) -> None:
    assert outcome_of(reply) == outcome
