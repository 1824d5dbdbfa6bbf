"""What a call costs and who pays."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.broker.sqs import throttle
from fleet.broker.sqs.shapes import VERBS
from fleet.broker.sqs.throttle import Bucket, Limit, Throttle

TEN: dict[str, Any] = {"Entries": [{}] * 10}


@pytest.mark.parametrize(
    ("verb", "charge"),
    [
        ("SendMessage", ("Send", 1)),
        ("SendMessageBatch", ("Send", 10)),
        ("ReceiveMessage", ("Receive", 1)),
        ("DeleteMessage", ("Receive", 1)),
        ("DeleteMessageBatch", ("Receive", 10)),
        ("ChangeMessageVisibility", ("Receive", 1)),
        ("ChangeMessageVisibilityBatch", ("Receive", 10)),
    ],
)
def test_a_message_verb_charges_a_token_a_message(verb: str, charge: tuple[str, int]) -> None:
    assert throttle.charge_of(verb, TEN) == charge


def test_a_verb_of_the_catalogue_is_free() -> None:
    free = [verb for verb in VERBS if throttle.charge_of(verb, TEN) is None]
    assert len(free) == len(VERBS) - 7


def test_a_pair_that_is_not_set_falls_through_to_one_shared_bucket() -> None:
    send, default = Limit(100, 10), Limit(20, 2)
    both = Throttle(send=send, default=default)
    assert throttle.bucket_of(both, "Send") == Bucket("Send", 100, 10)
    assert throttle.bucket_of(both, "Receive") == Bucket("*", 20, 2)
    assert throttle.bucket_of(Throttle(default=default), "Send") == Bucket("*", 20, 2)
    assert throttle.bucket_of(Throttle(recv=send), "Receive") == Bucket("Receive", 100, 10)
    assert throttle.bucket_of(Throttle(recv=send), "Send") is None


@pytest.mark.parametrize(
    ("tokens", "charge", "refill", "seconds"),
    [
        (0, 1, 1, 1),
        (0, 10, 1, 10),
        (9.5, 10, 1, 1),
        (0, 1, 100_000, 1),
        (0, 1, 0.1, 10),
        (0.05, 1, 0.1, 10),
        (0, 10, 0.0001, 3600),
        (0, 10, 1e-300, 3600),
    ],
)
def test_a_caller_hears_when_there_will_be_enough_for_the_same_call(
    tokens: float, charge: int, refill: float, seconds: int
) -> None:
    assert throttle.retry_after_s(tokens=tokens, charge=charge, refill=refill) == seconds


def test_a_rejection_names_queue_and_action() -> None:
    error = throttle.rejection("q", "Receive", 3)
    assert (error.code, error.type, error.status) == ("Throttling", "Throttling", 400)
    assert error.message == "Rate exceeded for queue 'q' action 'Receive'"
    assert dict(error.headers) == {
        "x-amzn-ErrorType": "Throttling",
        "Retry-After": "3",
        "x-amz-retry-after": "3000",
    }
