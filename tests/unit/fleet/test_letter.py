"""Dead letters as they are written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleet.letter import BODY_BYTES, malformed, parked, skipped
from fleet.state.entry import Entry


def entry(policy: str = "") -> Entry:
    one = Entry("q", "b1", "7", "batch", "g", "g", 0, "m1", "https://a/x", "sesame", True, policy=policy)
    one.tries = 3
    return one


def read(letter: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(letter)
    assert content.pop("t") > 1_700_000_000_000
    return content


KEPT = {
    "messageId": "m1", "brokerMessageId": "b1", "queueId": "q", "poolCode": "P", "messageGroupId": "g",
    "mediationTarget": "https://a/x", "authToken": "sesame", "highPriority": False,
}  # fmt: skip


def test_a_parked_message_counts_the_try_that_failed_last_and_a_skipped_one_has_none() -> None:
    assert read(parked(entry(), pool="P", reason="HTTP 500")) == KEPT | {
        "kind": "parked", "reason": "HTTP 500", "tries": 4,
    }  # fmt: skip
    assert read(skipped(entry(), pool="P")) == KEPT | {
        "kind": "skipped", "reason": "skipped by an operator", "tries": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "mode"), [("return", "IMMEDIATE"), ("skip", "NEXT_ON_ERROR"), ("hold", "BLOCK_ON_ERROR")]
)
def test_whoever_puts_it_aside_keeps_what_the_message_asked_for(policy: str, mode: str) -> None:
    for letter in (parked(entry(policy), pool="P", reason="no URL"), skipped(entry(policy), pool="P")):
        assert read(letter)["dispatchMode"] == mode


def test_of_a_body_that_is_not_a_message_its_beginning_is_kept() -> None:
    letter = read(malformed(broker_id="b1", queue="q", body=b"\xff" + b"x" * BODY_BYTES, reason="not JSON"))
    assert letter == {
        "brokerMessageId": "b1", "queueId": "q", "reason": "not JSON", "bodyBytes": BODY_BYTES + 1,
        "body": "\ufffd" + "x" * (BODY_BYTES - 1),
    }  # fmt: skip
