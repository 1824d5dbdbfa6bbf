"""Calls of the door, made by Google's own client: topics, subscriptions, publish, pull, acks, seek."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from google.api_core import exceptions
from google.pubsub_v1 import types

from fleet.broker.queue import MessageQueue
from tests.servers.local import RedisServer
from tests.servers.pubsub_door import PROJECT, Google, bodies


def test_what_is_published_is_pulled_and_is_what_it_was(google: Google) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic)
    before = datetime.now(UTC) - timedelta(seconds=5)
    (id_,) = google.publish(topic, "hello", key="k", colour="blue")
    (received,) = google.pull(subscription)
    message = received.message
    assert (message.message_id, message.data, dict(message.attributes)) == (id_, b"hello", {"colour": "blue"})
    assert (message.ordering_key, received.delivery_attempt) == ("k", 1)
    assert before < message.publish_time < before + timedelta(minutes=1)
    google.ack(subscription, received)
    assert google.pull_now(subscription) == []


def test_the_door_and_fleet_show_the_same_topics(google: Google, pubsub_redis: RedisServer) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic)
    with MessageQueue(url=pubsub_redis.url) as queue:
        queue.publish(topic.rpartition("/")[2], [{"data": b"from here"}])
        assert bodies(google.pull(subscription)) == ["from here"]
        google.publish(topic, "from there")
        (pulled,) = queue.pull(subscription.rpartition("/")[2], 10)
        assert pulled.data == b"from there"


def test_a_topic_is_made_shown_listed_and_deleted(google: Google) -> None:
    topic = google.new_topic()
    subscriptions = sorted(google.new_subscription(topic) for _ in range(3))
    assert google.publisher.get_topic(topic=topic).name == topic
    listed = google.publisher.list_topics(request={"project": f"projects/{PROJECT}", "page_size": 1})
    assert topic in [one.name for one in listed]
    of_topic = google.publisher.list_topic_subscriptions(request={"topic": topic, "page_size": 2})
    assert list(of_topic) == subscriptions
    google.publisher.delete_topic(topic=topic)
    with pytest.raises(exceptions.NotFound, match="Topic not found"):
        google.publisher.get_topic(topic=topic)
    assert google.subscriber.get_subscription(subscription=subscriptions[0]).topic == "_deleted-topic_"


def test_a_subscription_is_told_as_it_was_made(google: Google) -> None:
    topic, dead = google.new_topic(), google.new_topic()
    made = {
        "ack_deadline_seconds": 45,
        "enable_message_ordering": True,
        "filter": 'attributes.kind = "order"',
        "message_retention_duration": timedelta(hours=1),
        "dead_letter_policy": {"dead_letter_topic": dead, "max_delivery_attempts": 7},
        "retry_policy": {"minimum_backoff": timedelta(seconds=1.5), "maximum_backoff": timedelta(seconds=60)},
    }
    subscription = google.new_subscription(topic, **made)
    told = google.subscriber.get_subscription(subscription=subscription)
    asked = types.Subscription(name=subscription, topic=topic, state=types.Subscription.State.ACTIVE, **made)
    assert told == asked
    listed = google.subscriber.list_subscriptions(request={"project": f"projects/{PROJECT}", "page_size": 1})
    assert [one for one in listed if one.name == subscription] == [asked]
    google.subscriber.delete_subscription(subscription=subscription)
    with pytest.raises(exceptions.NotFound, match="Subscription not found"):
        google.subscriber.get_subscription(subscription=subscription)


def test_a_pull_waits_for_a_message_and_no_longer_than_its_client(google: Google) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic)
    began_s = time.monotonic()
    assert google.pull(subscription, timeout_s=2) == []
    assert 1 < time.monotonic() - began_s < 2
    waiting = google.pull_soon(subscription)
    google.publish(topic, "at last")
    assert bodies(waiting.result().received_messages) == ["at last"]


def test_a_client_that_hangs_up_takes_no_message_with_it(google: Google) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic, ack_deadline_seconds=600)
    for waiting in [google.pull_soon(subscription) for _ in range(10)]:
        waiting.cancel()
    google.publish(topic, "still here")
    (received,) = google.pull(subscription)
    assert (received.message.data, received.delivery_attempt) == (b"still here", 1)


def test_a_nacked_message_comes_again_and_an_extended_one_does_not(google: Google) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic)
    google.publish(topic, "one", "two")
    one, two = google.pull(subscription)
    google.modify(subscription, 600, two)
    google.modify(subscription, 0, one)
    (again,) = google.pull(subscription)
    assert (bodies([again]), again.delivery_attempt) == (["one"], 2)
    # The first showing counts no more, and nobody is told: without confirmations no client asks.
    google.ack(subscription, one)
    google.modify(subscription, 0, again)
    assert bodies(google.pull(subscription)) == ["one"]


def test_an_ordering_key_is_given_one_at_a_time_and_a_nack_does_not_change_its_order(google: Google) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic, enable_message_ordering=True)
    google.publish(topic, "a1", "a2", "a3", key="a")
    google.publish(topic, "b1", key="b")
    first = google.pull(subscription)
    assert bodies(first) == ["a1", "b1"]
    google.modify(subscription, 0, first[0])
    order = []
    while received := google.pull_now(subscription):
        order += bodies(received)
        google.ack(subscription, *received)
    assert order == ["a1", "a2", "a3"]


def test_the_last_attempt_makes_a_dead_letter(google: Google) -> None:
    topic, dead = google.new_topic(), google.new_topic()
    letters = google.new_subscription(dead)
    policy = {"dead_letter_topic": dead, "max_delivery_attempts": 2}
    subscription = google.new_subscription(topic, dead_letter_policy=policy)
    google.publish(topic, "cursed", why="me")
    for attempt in (1, 2):
        (received,) = google.pull(subscription)
        assert received.delivery_attempt == attempt
        google.modify(subscription, 0, received)
    (letter,) = google.pull(letters)
    assert (letter.message.data, dict(letter.message.attributes)) == (b"cursed", {"why": "me"})
    assert google.pull_now(subscription) == []


def test_a_retry_policy_keeps_a_nacked_message_away(google: Google) -> None:
    topic = google.new_topic()
    backoff = {"minimum_backoff": timedelta(seconds=1), "maximum_backoff": timedelta(seconds=5)}
    subscription = google.new_subscription(topic, retry_policy=backoff)
    google.publish(topic, "later")
    google.modify(subscription, 0, *google.pull(subscription))
    began_s = time.monotonic()
    assert google.pull_now(subscription) == []
    assert bodies(google.pull(subscription)) == ["later"]
    assert time.monotonic() - began_s > 0.9


def test_a_filter_chooses(google: Google) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic, filter='hasPrefix(attributes.region, "eu-")')
    google.publish(topic, "us", region="us-east")
    google.publish(topic, "eu", region="eu-west")
    assert bodies(google.pull(subscription)) == ["eu"]
    with pytest.raises(exceptions.InvalidArgument, match="filter"):
        google.new_subscription(topic, filter="attributes.region >")


def test_seek_throws_away_what_was_published_before(google: Google) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic)
    google.publish(topic, "old", "new")
    old, new = google.pull(subscription)
    google.subscriber.seek(request={"subscription": subscription, "time": new.message.publish_time})
    google.modify(subscription, 0, old, new)
    assert bodies(google.pull(subscription)) == ["new"]
