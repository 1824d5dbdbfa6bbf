"""The errors of the broker: numbers and texts of seed 001."""

from __future__ import annotations

import re

import pytest

from fleet.broker import errors
from fleet.errors import FleetError


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (errors.TopicNotFound("test-topic"), 5, "Topic not found: test-topic"),
        (errors.SubscriptionNotFound("test-sub"), 5, "Subscription not found: test-sub"),
        (errors.InvalidAckId("abc123"), 3, "Invalid ack ID: abc123"),
        (errors.InvalidArgument("no"), 3, "no"),
        (errors.AlreadyExists("there"), 6, "there"),
        (errors.Exhausted("full"), 8, "full"),
        (errors.FailedPrecondition("not now"), 9, "not now"),
        (errors.Unavailable("away"), 14, "away"),
        (errors.Unsure("lost"), 2, "lost"),
        (errors.DataLoss("torn"), 15, "torn"),
    ],
)
def test_an_error_has_its_code_and_its_message(error: errors.BrokerError, code: int, message: str) -> None:
    assert (error.code, error.message, str(error)) == (code, message, message)
    assert isinstance(error, FleetError)


def test_whoever_repeats_what_was_not_accepted_does_not_repeat_what_may_have_been() -> None:
    assert not issubclass(errors.Unsure, errors.Unavailable)


def test_the_tree_is_drawn_as_it_is() -> None:
    """Each line of it: by its depth, below whom, with which code."""
    drawn: dict[str, tuple[str, str]] = {}
    above = ["BrokerError"]
    for indent, name, code in re.findall(r"^([│ ├└─]+)(\w+) *(\d*)", errors.__doc__ or "", re.MULTILINE):
        depth = len(indent) // 4
        above[depth:] = [name]
        drawn[name] = (above[depth - 1], code)
    there = {
        name: (one.__base__.__name__, str(one.code) if one.__base__ is errors.BrokerError else "")
        for name, one in vars(errors).items()
        if isinstance(one, type)
        and issubclass(one, errors.BrokerError)
        and one is not errors.BrokerError
        and one.__base__ is not None
    }
    assert drawn == there
