"""The door as a process: it ends, comes back, and outlives its Redis."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import pytest
from google.api_core import bidi, exceptions
from google.cloud.pubsub_v1.subscriber.message import Message

from fleet.state.keys import SubscriptionKeys
from tests.integration.pubsub.test_streams import reading
from tests.servers.local import RedisServer, running_redis
from tests.servers.ports import free_port
from tests.servers.pubsub_door import TIMEOUT_S, Google, bodies, running_pubsub_door
from tests.waiting import until


def waits(server: RedisServer, topic: str, subscription: str) -> bool:
    """Whether somebody found nothing there, and waits."""
    topic, subscription = (path.rpartition("/")[2] for path in (topic, subscription))
    with server.client() as client:
        return client.hget(SubscriptionKeys(topic, subscription).state, "waits") is not None


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's client tries a few times within a moment, and then looks again after 10 s. Here it does so earlier."""
    throttle: Any = bidi._Throttle
    window = timedelta(seconds=0.5)
    monkeypatch.setattr(bidi, "_Throttle", lambda access_limit, time_window: throttle(access_limit, window))


@contextmanager
def client_of(address: str) -> Iterator[Google]:
    client = Google(address)
    try:
        yield client
    finally:
        client.close()


@pytest.mark.usefixtures("eager")
def test_sigterm_ends_streams_and_pulls_at_once_and_readers_go_on_at_the_next_door(redis_server: RedisServer) -> None:
    got: list[str] = []
    held = threading.Event()

    def handle(message: Message) -> None:
        got.append(message.data.decode())
        if message.data == b"held":
            # With its reader while the door is away: what was given stays given.
            held.set()
            return
        message.ack()

    port = free_port()
    # A reader says what becomes of what it holds as it ends, and says so for a minute if no door is there to hear it.
    with client_of(f"127.0.0.1:{port}") as google, ExitStack() as doors, ExitStack() as readers:
        with running_pubsub_door(redis_server.url, port=port) as door:
            topic = google.new_topic()
            subscription = google.new_subscription(topic)
            other = google.new_subscription(topic)
            google.publish(topic, "one")
            google.ack(other, *google.pull(other))
            future = readers.enter_context(reading(google, subscription, handle))
            google.publish(topic, "held")
            assert held.wait(TIMEOUT_S)
            assert bodies(google.pull(other)) == ["held"]
            waiting = google.pull_soon(other)
            until(lambda: "one" in got and waits(redis_server, topic, other))
            door.server.process.send_signal(signal.SIGTERM)
            assert door.server.process.wait(4) == 0
            assert list(waiting.result().received_messages) == []
        doors.enter_context(running_pubsub_door(redis_server.url, port=port))
        google.publish(topic, "two")
        until(lambda: "two" in got)
        assert not future.done()
        assert set(got) == {"held", "one", "two"}


def test_without_redis_calls_are_unavailable_and_with_it_they_are_answered_again() -> None:
    port = free_port()
    with running_redis(port=port) as redis, running_pubsub_door(redis.url) as door, client_of(door.address) as google:
        topic = google.new_topic()
        subscription = google.new_subscription(topic)
        got: list[str] = []

        def handle(message: Message) -> None:
            got.append(message.data.decode())
            message.ack()

        with reading(google, subscription, handle):
            google.publish(topic, "before")
            until(lambda: got == ["before"])
            redis.server.kill()
            with pytest.raises(exceptions.ServiceUnavailable):
                google.pull_now(subscription)
            with pytest.raises(exceptions.ServiceUnavailable):
                google.publisher.get_topic(topic=topic, retry=None, timeout=TIMEOUT_S)
            with running_redis(port=port):
                # A Redis that forgot everything: what reads there is told so, and what is made there works.
                until(lambda: _makes_a_topic(google))
                again = google.new_topic()
                here = google.new_subscription(again)
                google.publish(again, "after")
                assert bodies(google.pull(here)) == ["after"]
        assert door.server.process.poll() is None


def _makes_a_topic(google: Google) -> bool:
    try:
        google.new_topic()
    except exceptions.ServiceUnavailable:
        return False
    return True


def test_two_doors_on_one_redis_are_one(redis_server: RedisServer) -> None:
    with (
        running_pubsub_door(redis_server.url) as here,
        running_pubsub_door(redis_server.url) as there,
        client_of(here.address) as google,
        client_of(there.address) as other,
    ):
        topic = google.new_topic()
        subscription = google.new_subscription(topic)
        waiting = other.pull_soon(subscription)
        google.publish(topic, "across")
        received = list(waiting.result().received_messages)
        assert bodies(received) == ["across"]
        google.ack(subscription, *received)
        google.subscriber.delete_subscription(subscription=subscription)
        with pytest.raises(exceptions.NotFound):
            other.pull_now(subscription)
