"""Options of a subscription."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.broker.errors import InvalidArgument
from fleet.broker.options import DeadLetterPolicy, FlowControl, RetryPolicy, SubscriptionOptions

EVERY = SubscriptionOptions(
    ack_deadline_seconds=60,
    message_ordering=True,
    retry_policy=RetryPolicy(minimum_backoff=1, maximum_backoff=60),
    dead_letter_policy=DeadLetterPolicy(dead_letter_topic="dead", max_delivery_attempts=3),
    flow_control=FlowControl(max_messages=10, max_bytes=1000),
    filter="attributes:a",
    message_retention_seconds=3600,
)


def test_without_options_they_are_the_seeds() -> None:
    options = SubscriptionOptions.read()
    assert options == SubscriptionOptions.read(None) == SubscriptionOptions.read({}) == SubscriptionOptions()
    assert options.ack_deadline_seconds == 10
    assert options.message_retention_seconds == 7 * 24 * 60 * 60
    assert (options.message_ordering, options.filter) == (False, "")
    assert (options.retry_policy, options.dead_letter_policy, options.flow_control) == (None, None, None)
    assert [options.backoff(attempt) for attempt in (1, 2, 50)] == [0, 0, 0]


_OURS: dict[str, Any] = {
    "ack_deadline_seconds": 60,
    "message_ordering": True,
    "retry_policy": {"minimum_backoff": 1, "maximum_backoff": 60},
    "dead_letter_policy": {"dead_letter_topic": "dead", "max_delivery_attempts": 3},
    "flow_control": {"max_messages": 10, "max_bytes": 1000},
    "filter": "attributes:a",
    "message_retention_seconds": 3600,
}
_SEEDS: dict[str, Any] = {
    "ackDeadlineSeconds": 60,
    "messageOrdering": True,
    "retryPolicy": {"minimumBackoff": 1, "maximumBackoff": 60},
    "deadLetterPolicy": {"deadLetterTopic": "dead", "maxDeliveryAttempts": 3},
    "flowControl": {"maxMessages": 10, "maxBytes": 1000},
    "filter": "attributes:a",
    "messageRetentionDuration": 3600,
}


def test_they_are_a_mapping_or_keywords_in_either_spelling() -> None:
    assert SubscriptionOptions.read(_OURS) == EVERY
    assert SubscriptionOptions.read(_SEEDS) == EVERY
    assert SubscriptionOptions.read(**_OURS) == EVERY
    assert (
        SubscriptionOptions.read({"filter": "attributes:a"}, **{k: v for k, v in _SEEDS.items() if k != "filter"})
        == EVERY
    )
    assert SubscriptionOptions.read(EVERY) is EVERY


@pytest.mark.parametrize(
    "name", ["message_ordering", "enable_message_ordering", "messageOrdering", "enableMessageOrdering"]
)
def test_ordering_has_two_names_in_two_spellings(name: str) -> None:
    assert SubscriptionOptions.read({name: True}).message_ordering is True


def test_what_is_none_is_absent() -> None:
    assert SubscriptionOptions.read({"ackDeadlineSeconds": None, "retryPolicy": None}) == SubscriptionOptions()
    assert SubscriptionOptions.read(flow_control={"max_messages": 3, "max_bytes": None}).flow_control == FlowControl(
        max_messages=3
    )


def test_what_is_stored_comes_back_as_it_was() -> None:
    for options in (EVERY, SubscriptionOptions()):
        stored = msgspec.msgpack.encode(options)
        assert msgspec.msgpack.decode(stored, type=SubscriptionOptions) == options
    assert msgspec.to_builtins(EVERY) == _OURS
    assert msgspec.to_builtins(SubscriptionOptions()) == {}


_FOREVER = float("inf")
_SECONDS_10_600 = "ack_deadline_seconds must be a number of seconds from 10 to 600, is"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"ack_deadline_seconds": 9.99}, f"{_SECONDS_10_600} 9.99"),
        ({"ack_deadline_seconds": 601}, f"{_SECONDS_10_600} 601"),
        ({"ack_deadline_seconds": 0}, f"{_SECONDS_10_600} 0"),
        ({"ack_deadline_seconds": True}, f"{_SECONDS_10_600} True"),
        ({"ack_deadline_seconds": "60"}, f"{_SECONDS_10_600} '60'"),
        ({"ack_deadline_seconds": float("nan")}, f"{_SECONDS_10_600} nan"),
        ({"message_ordering": 1}, "message_ordering must be True or False, is 1"),
        ({"filter": 1}, "filter must be text, is int"),
        ({"filter": "attributes"}, 'filter: expected ":" or "." at character 11 of \'attributes\''),
        (
            {"message_retention_seconds": 599},
            "message_retention_seconds must be a number of seconds from 600 to 2678400, is 599",
        ),
        (
            {"message_retention_seconds": _FOREVER},
            "message_retention_seconds must be a number of seconds from 600 to 2678400, is inf",
        ),
        (
            {"retry_policy": {"minimum_backoff": -1}},
            "retry_policy.minimum_backoff must be a number of seconds from 0 to 600, is -1",
        ),
        (
            {"retry_policy": {"maximum_backoff": 601}},
            "retry_policy.maximum_backoff must be a number of seconds from 0 to 600, is 601",
        ),
        (
            {"retry_policy": {"minimum_backoff": 20, "maximum_backoff": 10}},
            "retry_policy: minimum_backoff (20 s) is longer than maximum_backoff (10 s)",
        ),
        ({"retry_policy": 5}, "retry_policy must be a mapping, is int"),
        ({"retry_policy": {"minimum": 5}}, "retry_policy: unknown name 'minimum', did you mean minimum_backoff?"),
        ({"dead_letter_policy": {}}, "dead_letter_policy: dead_letter_topic is missing"),
        (
            {"dead_letter_policy": {"dead_letter_topic": "7"}},
            "Invalid topic name: '7' does not begin with a letter",
        ),
        (
            {"dead_letter_policy": {"dead_letter_topic": "dead", "max_delivery_attempts": 0}},
            "dead_letter_policy.max_delivery_attempts must be a whole number from 1 on, is 0",
        ),
        (
            {"dead_letter_policy": {"dead_letter_topic": "dead", "max_delivery_attempts": 2.5}},
            "dead_letter_policy.max_delivery_attempts must be a whole number from 1 on, is 2.5",
        ),
        ({"flow_control": {"max_messages": 0}}, "flow_control.max_messages must be a whole number from 1 on, is 0"),
        ({"flow_control": {"max_bytes": True}}, "flow_control.max_bytes must be a whole number from 1 on, is True"),
        ({"ack_deadline": 10}, "options: unknown name 'ack_deadline', did you mean ack_deadline_seconds?"),
        ({"ackDeadlineSecond": 10}, "options: unknown name 'ackDeadlineSecond', did you mean ack_deadline_seconds?"),
        ({"zzz": 10}, "options: unknown name 'zzz'"),
        (
            {"messageOrdering": True, "enableMessageOrdering": False},
            "options: message_ordering is given twice, the second time as 'enableMessageOrdering'",
        ),
        ([], "options must be a mapping, is list"),
    ],
)
def test_a_wrong_option_is_refused_with_its_reason(wrong: Any, reason: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        SubscriptionOptions.read(wrong)
    assert (refused.value.code, refused.value.message) == (3, reason)


def test_the_same_option_is_not_given_in_the_mapping_and_as_a_keyword() -> None:
    with pytest.raises(InvalidArgument, match="filter is given twice, in the mapping and as a keyword"):
        SubscriptionOptions.read({"filter": "attributes:a"}, filter="attributes:a")
    with pytest.raises(InvalidArgument, match="take one"):
        SubscriptionOptions.read(EVERY, filter="attributes:a")


@pytest.mark.parametrize(
    "options",
    [
        {"ack_deadline_seconds": 10},
        {"ack_deadline_seconds": 600},
        {"message_retention_seconds": 600},
        {"message_retention_seconds": 31 * 24 * 60 * 60},
        {"retry_policy": {"minimum_backoff": 0, "maximum_backoff": 0}},
        {"retry_policy": {"minimum_backoff": 600, "maximum_backoff": 600}},
        {"retry_policy": {}},
        {"dead_letter_policy": {"dead_letter_topic": "dead", "max_delivery_attempts": 1}},
        {"flow_control": {"max_messages": 1, "max_bytes": 1}},
        {"flow_control": {}},
    ],
)
def test_values_at_the_limits_are_taken(options: dict[str, Any]) -> None:
    SubscriptionOptions.read(options)


# Backoff --------------------------------------------------------------------------------------------


def test_the_backoff_doubles_from_the_least_to_the_most() -> None:
    options = SubscriptionOptions.read(retry_policy={"minimum_backoff": 1, "maximum_backoff": 10})
    assert [options.backoff(attempt) for attempt in range(1, 8)] == [1, 2, 4, 8, 10, 10, 10]


def test_no_least_is_no_backoff() -> None:
    policy = RetryPolicy(minimum_backoff=0, maximum_backoff=600)
    assert [policy.backoff(attempt) for attempt in (1, 2, 100)] == [0, 0, 0]


_BACKOFFS = st.lists(st.floats(0.001, 600), min_size=2, max_size=2).map(sorted)


@given(_BACKOFFS, st.integers(1, 60))
def test_the_backoff_is_the_formula_of_the_seed(backoffs: list[float], attempt: int) -> None:
    policy = RetryPolicy(minimum_backoff=backoffs[0], maximum_backoff=backoffs[1])
    assert policy.backoff(attempt) == min(backoffs[0] * 2 ** (attempt - 1), backoffs[1])


@given(_BACKOFFS, st.integers(0, 2**62))
def test_no_attempt_is_too_many_for_a_backoff(backoffs: list[float], attempt: int) -> None:
    policy = RetryPolicy(minimum_backoff=backoffs[0], maximum_backoff=backoffs[1])
    assert backoffs[0] <= policy.backoff(attempt) <= backoffs[1]
