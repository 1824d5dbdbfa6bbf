"""Seed 000's table of responses, one case a row in responses.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from fleet import outcome as outcomes
from fleet.delivery.classify import classify
from fleet.delivery.reply import ErrorKind, Reply

ROWS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "responses.json").read_text())

# The rows of the seed's table, in its words and order; then those that are ours.
TABLE = [
    "200 ack=true",
    "200 ack=false, delay provided",
    "200 ack=false, no delay",
    "200 JSON parse error",
    "400",
    "401-499 (except 404, 429)",
    "404",
    "429 Retry-After header present (integer)",
    "429 no Retry-After header",
    "501",
    "5xx (not 501)",
    "unexpected (not 4xx/5xx)",
    "HttpConnectTimeoutException",
    "ConnectException",
    "UnresolvedAddressException",
    "HttpTimeoutException",
    "IOException (general)",
    "any other exception",
    "ours: JSON without ack",
    "ours: over 64 KiB",
    "ours: encoded",
    "ours: 2xx other than 200",
]


@pytest.mark.parametrize("row", ROWS, ids=[row["case"] for row in ROWS])
def test_a_reply_is_classified_as_its_row_says(row: dict[str, Any]) -> None:
    fields = dict(row["reply"])
    body = fields.pop("body", "").encode("latin-1") * fields.pop("times", 1)
    reply = Reply(**{"status": 0, "seconds": 0.0, "body": body, **fields})
    outcome = classify(reply)
    expected = dict(row["is"])
    assert type(outcome) is getattr(outcomes, expected.pop("outcome"))
    assert {name: getattr(outcome, name) for name in expected} == expected


def test_every_row_of_the_table_is_a_case() -> None:
    assert sorted(row["row"] for row in ROWS if "row" in row) == sorted(TABLE)
    assert len({row["case"] for row in ROWS}) == len(ROWS)


def test_the_rows_cover_every_error_and_every_status_class() -> None:
    assert {row["reply"].get("error") for row in ROWS} >= set(get_args(ErrorKind))
    assert {row["reply"].get("status", 0) // 100 for row in ROWS} >= {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("status", range(100, 1000))
def test_only_a_200_is_a_success(status: int) -> None:
    assert isinstance(classify(Reply(status, b"", 0.0)), outcomes.Delivered) == (status == 200)


@pytest.mark.parametrize("status", [s for s in range(400, 500) if s != 429])
def test_every_4xx_but_429_is_rejected(status: int) -> None:
    assert classify(Reply(status, b'{"ack":true}', 0.0)) == outcomes.Rejected(status, f"HTTP {status}")


def test_a_reason_is_one_short_line_whatever_the_endpoint_wrote() -> None:
    outcome = classify(Reply(200, json.dumps({"ack": False, "message": "a\nb\x00" + "c" * 9000}).encode(), 0.0))
    assert isinstance(outcome, outcomes.Failed)
    assert outcome.reason.isprintable() and len(outcome.reason) < 250
