"""What the door refuses, as the exceptions that Google's client makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.api_core import exceptions
from google.pubsub_v1 import SchemaServiceClient, types

from tests.servers.pubsub_door import PROJECT, TIMEOUT_S, Google

NO_TOPIC = f"projects/{PROJECT}/topics/nothing"
NO_SUBSCRIPTION = f"projects/{PROJECT}/subscriptions/nothing"


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda it: it.publisher.delete_topic(topic=NO_TOPIC), exceptions.NotFound, "Topic not found: nothing"),
        (lambda it: it.publish(NO_TOPIC, "x"), exceptions.NotFound, "Topic not found: nothing"),
        (lambda it: it.pull_now(NO_SUBSCRIPTION), exceptions.NotFound, "Subscription not found: nothing"),
        (lambda it: it.new_subscription(NO_TOPIC), exceptions.NotFound, "Topic not found: nothing"),
        (
            lambda it: it.subscriber.acknowledge(subscription=NO_SUBSCRIPTION, ack_ids=["AXX"]),
            exceptions.InvalidArgument,
            "Invalid ack ID: AXX",
        ),
        (
            lambda it: it.subscriber.acknowledge(subscription=NO_SUBSCRIPTION, ack_ids=[]),
            exceptions.InvalidArgument,
            "there are no ack_ids",
        ),
        (lambda it: it.publisher.create_topic(name="orders"), exceptions.InvalidArgument, "Invalid .topics. name"),
        (
            lambda it: it.publisher.create_topic(name=f"projects/{PROJECT}/topics/9th"),
            exceptions.InvalidArgument,
            "does not begin with a letter",
        ),
        (
            lambda it: it.new_subscription(it.new_topic(), ack_deadline_seconds=5),
            exceptions.InvalidArgument,
            "ack_deadline_seconds",
        ),
        (
            lambda it: it.new_subscription(it.new_topic(), enable_exactly_once_delivery=True),
            exceptions.MethodNotImplemented,
            "enable_exactly_once_delivery",
        ),
        (
            lambda it: it.new_subscription(it.new_topic(), push_config={"push_endpoint": "https://example.com"}),
            exceptions.MethodNotImplemented,
            "push_config",
        ),
        (
            lambda it: it.publisher.create_topic(request={"name": NO_TOPIC, "kms_key_name": "k"}),
            exceptions.MethodNotImplemented,
            "kms_key_name",
        ),
        (
            lambda it: it.subscriber.create_snapshot(
                name=f"projects/{PROJECT}/snapshots/s", subscription=NO_SUBSCRIPTION
            ),
            exceptions.MethodNotImplemented,
            "snapshots are not supported",
        ),
        (
            lambda it: it.subscriber.seek(request={"subscription": NO_SUBSCRIPTION, "snapshot": "s"}),
            exceptions.MethodNotImplemented,
            "snapshots are not supported",
        ),
        (
            lambda it: it.publisher.get_iam_policy(request={"resource": NO_TOPIC}),
            exceptions.MethodNotImplemented,
            "IAM is not supported",
        ),
        (
            lambda it: it.publisher.detach_subscription(request={"subscription": NO_SUBSCRIPTION}),
            exceptions.MethodNotImplemented,
            "cannot be detached",
        ),
    ],
)
def test_a_call_is_refused_with_its_reason(
    google: Google, call: Callable[[Google], Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        call(google)


def test_what_is_there_is_not_made_again(google: Google) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic)
    with pytest.raises(exceptions.AlreadyExists, match="Topic already exists"):
        google.publisher.create_topic(name=topic)
    with pytest.raises(exceptions.AlreadyExists, match="Subscription already exists"):
        google.subscriber.create_subscription(name=subscription, topic=topic)
    with pytest.raises(exceptions.AlreadyExists, match="other options"):
        google.subscriber.create_subscription(name=subscription, topic=topic, ack_deadline_seconds=60)


def test_an_update_is_taken_where_it_changes_nothing(google: Google) -> None:
    topic = google.new_topic()
    now = google.subscriber.get_subscription(subscription=google.new_subscription(topic))
    same = {"subscription": now, "update_mask": {"paths": ["ack_deadline_seconds", "dead_letter_policy"]}}
    assert google.subscriber.update_subscription(request=same) == now
    now.ack_deadline_seconds = 20
    with pytest.raises(exceptions.MethodNotImplemented, match="ack_deadline_seconds cannot be changed"):
        google.subscriber.update_subscription(request=same)
    with pytest.raises(exceptions.InvalidArgument, match="no field colour"):
        google.subscriber.update_subscription(request={"subscription": now, "update_mask": {"paths": ["colour"]}})
    labels = {"topic": {"name": topic, "labels": {"a": "b"}}, "update_mask": {"paths": ["labels"]}}
    with pytest.raises(exceptions.MethodNotImplemented, match="labels cannot be changed"):
        google.publisher.update_topic(request=labels)


def test_a_publish_with_one_wrong_message_publishes_none(google: Google) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic)
    for wrong in ({}, {"data": b"x", "attributes": {"goog": "reserved"}}, {"data": b"x", "ordering_key": "k" * 2000}):
        with pytest.raises(exceptions.InvalidArgument, match="message 1: "):
            google.raw("publish", types.PublishRequest(topic=topic, messages=[{"data": b"right"}, wrong]))
    assert google.pull_now(subscription) == []


def test_an_ack_id_of_another_subscription_acks_nothing(google: Google) -> None:
    topic = google.new_topic()
    mine, other = google.new_subscription(topic), google.new_subscription(topic)
    google.publish(topic, "mine")
    (received,) = google.pull(mine)
    with pytest.raises(exceptions.InvalidArgument, match="Invalid ack ID"):
        google.ack(other, received)
    google.modify(mine, 0, received)
    assert len(google.pull(mine)) == 1


def test_schemas_are_refused(google: Google, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", google.address)
    with SchemaServiceClient() as schemas, pytest.raises(exceptions.MethodNotImplemented, match="schemas are not"):
        schemas.get_schema(name=f"projects/{PROJECT}/schemas/s", timeout=TIMEOUT_S)
