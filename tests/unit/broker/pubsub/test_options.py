"""Subscriptions as Pub/Sub writes them, and our options."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from google.pubsub_v1 import types
from hypothesis import given
from hypothesis import strategies as st

from fleet.broker.errors import BrokerError, InvalidArgument
from fleet.broker.options import DeadLetterPolicy, RetryPolicy, SubscriptionOptions
from fleet.broker.pubsub.errors import Unsupported
from fleet.broker.pubsub.options import options_of, refuse_changes, told
from fleet.broker.records import Subscription

PATHS = {"name": "projects/p/subscriptions/s", "topic": "projects/p/topics/t"}


def asked(**fields: Any) -> Any:
    return types.Subscription.pb(types.Subscription({**PATHS, **fields}))


def there(options: SubscriptionOptions, *, detached: bool = False) -> Any:
    return told(Subscription("s", "t", datetime.now(UTC), options, detached), "p")


def test_what_is_not_asked_for_is_our_default() -> None:
    assert options_of(asked()) == SubscriptionOptions()
    policies = {"retry_policy": {}, "dead_letter_policy": {"dead_letter_topic": "projects/p/topics/dead"}}
    assert options_of(asked(**policies)) == SubscriptionOptions(
        retry_policy=RetryPolicy(minimum_backoff=10, maximum_backoff=600),
        dead_letter_policy=DeadLetterPolicy(dead_letter_topic="dead", max_delivery_attempts=5),
    )


@given(
    st.builds(
        SubscriptionOptions,
        ack_deadline_seconds=st.integers(10, 600),
        message_ordering=st.booleans(),
        retry_policy=st.none()
        | st.builds(RetryPolicy, minimum_backoff=st.sampled_from([0.0, 0.1, 10]), maximum_backoff=st.floats(10, 600)),
        dead_letter_policy=st.none()
        | st.builds(DeadLetterPolicy, dead_letter_topic=st.just("dead"), max_delivery_attempts=st.integers(1, 1000)),
        filter=st.sampled_from(["", "attributes:kind"]),
        message_retention_seconds=st.integers(600, 31 * 86400),
    )
)
def test_what_is_told_and_asked_for_again_is_the_same(options: SubscriptionOptions) -> None:
    again = options_of(there(options))
    assert there(again) == there(options)
    assert (again.filter, again.message_ordering) == (options.filter, options.message_ordering)
    assert again.dead_letter_policy == options.dead_letter_policy
    if options.retry_policy and again.retry_policy:
        assert again.retry_policy.maximum_backoff == pytest.approx(options.retry_policy.maximum_backoff, abs=1e-8)


def test_without_its_topic_a_subscription_says_so() -> None:
    assert there(SubscriptionOptions(), detached=True).topic == "_deleted-topic_"


def test_a_part_of_a_second_is_told_as_the_whole_one() -> None:
    assert there(SubscriptionOptions(ack_deadline_seconds=10.5)).ack_deadline_seconds == 11


@pytest.mark.parametrize(
    "fields",
    [
        {"push_config": {"push_endpoint": "https://example.com"}},
        {"bigquery_config": {"table": "t"}},
        {"cloud_storage_config": {"bucket": "b"}},
        {"enable_exactly_once_delivery": True},
        {"retain_acked_messages": True},
        {"message_transforms": [{"disabled": True}]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_changes_the_delivery_and_is_not_ours_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match=next(iter(fields))):
        options_of(asked(**fields))


@pytest.mark.parametrize(
    "fields",
    [{"push_config": {}}, {"labels": {"a": "b"}}, {"expiration_policy": {}}, {"state": 1}, {"detached": True}],
    ids=lambda fields: next(iter(fields)),
)
def test_what_changes_nothing_is_taken(fields: dict[str, Any]) -> None:
    assert options_of(asked(**fields)) == SubscriptionOptions()


@pytest.mark.parametrize(
    "fields",
    [
        {"ack_deadline_seconds": 9},
        {"message_retention_duration": {"seconds": 599}},
        {"message_retention_duration": {"seconds": 2**62}},
        {"retry_policy": {"minimum_backoff": {"seconds": -1}}},
        {"dead_letter_policy": {"max_delivery_attempts": 5}},
        {"dead_letter_policy": {"dead_letter_topic": "dead"}},
        {"filter": "attributes:"},
    ],
)
def test_what_is_out_of_range_is_an_invalid_argument(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        options_of(_raw(fields))


def test_a_change_is_refused_and_the_same_again_is_not() -> None:
    now = there(SubscriptionOptions(dead_letter_policy=DeadLetterPolicy(dead_letter_topic="dead")))
    change = types.Subscription.pb()()
    change.CopyFrom(now)
    change.dead_letter_policy.max_delivery_attempts = 9
    refuse_changes(now, change, ["dead_letter_policy.dead_letter_topic", "ack_deadline_seconds"])
    problems: list[tuple[list[str], type[BrokerError]]] = [
        (["dead_letter_policy"], Unsupported),
        (["dead_letter_policy.max_delivery_attempts"], Unsupported),
        (["dead_letter_policy.colour"], InvalidArgument),
        (["name.colour"], InvalidArgument),
        ([], InvalidArgument),
    ]
    for paths, kind in problems:
        with pytest.raises(kind):
            refuse_changes(now, change, paths)


def _raw(fields: dict[str, Any]) -> Any:
    return types.Subscription.pb()(**{**PATHS, **fields})
