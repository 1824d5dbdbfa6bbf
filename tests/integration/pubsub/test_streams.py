"""StreamingPull, as `subscribe` of Google's client uses it, and as it is on the wire."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.cloud.pubsub_v1.subscriber.message import Message
from google.cloud.pubsub_v1.types import FlowControl
from google.pubsub_v1 import types

from fleet.state.keys import SubscriptionKeys
from tests.servers.local import RedisServer
from tests.servers.pubsub_door import TIMEOUT_S, Google
from tests.waiting import until


@contextmanager
def reading(
    google: Google, subscription: str, handle: Callable[[Message], None], *, at_once: int = 1000
) -> Iterator[Any]:
    future = google.subscriber.subscribe(subscription, handle, flow_control=FlowControl(max_messages=at_once))
    try:
        yield future
    finally:
        future.cancel()
        if not future.done() or future.exception() is None:
            future.result(TIMEOUT_S)


class Wire:
    """A stream without what Google's client does by itself: it sends what a test says, and shows what it gets."""

    def __init__(self, google: Google, subscription: str, **first: Any) -> None:
        self._asked: queue.Queue[Any] = queue.Queue()
        self.say(subscription=subscription, **{"stream_ack_deadline_seconds": 600, **first})
        self._answers = google.subscriber.transport.streaming_pull(iter(self._asked.get, None))
        self.got: list[Any] = []
        self.error: grpc.RpcError | None = None
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def say(self, **fields: Any) -> None:
        self._asked.put(types.StreamingPullRequest(**fields))

    def end(self) -> None:
        """Says that this was all."""
        self._asked.put(None)

    def texts(self) -> list[str]:
        return [one.message.data.decode() for one in self.got]

    def holds(self, *texts: str) -> None:
        until(lambda: self.texts() == list(texts), why=lambda: f"{self.texts()} {self.error}")

    def is_over(self) -> grpc.StatusCode:
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()
        code: grpc.StatusCode = self._answers.code()
        return code

    def _read(self) -> None:
        try:
            for answer in self._answers:
                self.got += answer.received_messages
        except grpc.RpcError as error:
            self.error = error
        self._asked.put(None)

    def close(self) -> None:
        self._answers.cancel()
        self.is_over()


@pytest.fixture
def wire(google: Google) -> Iterator[Callable[..., Wire]]:
    opened = []

    def open_one(subscription: str, **first: Any) -> Wire:
        opened.append(Wire(google, subscription, **first))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def test_subscribe_gets_everything_and_what_it_acks_is_gone(google: Google) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic)
    got: list[str] = []

    def handle(message: Message) -> None:
        got.append(message.data.decode())
        message.ack()

    sent = [str(number) for number in range(300)]
    with reading(google, subscription, handle):
        google.publish(topic, *sent)
        until(lambda: len(got) >= len(sent))
    assert sorted(got, key=int) == sent
    assert google.pull_now(subscription) == []


def test_two_who_read_one_subscription_share_its_messages(google: Google) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic)
    got: list[tuple[str, str]] = []

    def by(who: str) -> Callable[[Message], None]:
        def handle(message: Message) -> None:
            got.append((who, message.data.decode()))
            message.ack()

        return handle

    sent = [str(number) for number in range(100)]
    with reading(google, subscription, by("a")), reading(google, subscription, by("b")):
        google.publish(topic, *sent)
        until(lambda: len(got) >= len(sent))
    assert sorted((text for _, text in got), key=int) == sent


def test_messages_of_a_key_come_in_order_though_some_are_nacked(google: Google) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic, enable_message_ordering=True)
    shown: dict[str, list[str]] = {"a": [], "b": []}
    acked: dict[str, list[str]] = {"a": [], "b": []}

    def handle(message: Message) -> None:
        text, key = message.data.decode(), message.ordering_key
        shown[key].append(text)
        if int(text) % 3 == 0 and shown[key].count(text) == 1:
            message.nack()
            return
        acked[key].append(text)
        message.ack()

    sent = [str(number) for number in range(20)]
    for key in shown:
        google.publish(topic, *sent, key=key)
    with reading(google, subscription, handle):
        until(lambda: all(len(texts) >= len(sent) for texts in acked.values()), why=lambda: str(shown))
    again = [text for text in sent for _ in range(2 if int(text) % 3 == 0 else 1)]
    assert (acked, shown) == ({"a": sent, "b": sent}, {"a": again, "b": again})


def test_a_subscriber_that_holds_one_at_a_time_gets_one_at_a_time(google: Google) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic)
    google.publish(topic, "one", "two", "three")
    got: queue.Queue[Message] = queue.Queue()
    with reading(google, subscription, got.put, at_once=1):
        for text in ("one", "two", "three"):
            message = got.get(timeout=TIMEOUT_S)
            assert (message.data.decode(), got.qsize()) == (text, 0)
            message.ack()
    assert google.pull_now(subscription) == []


def test_a_stream_gives_no_more_than_its_client_holds(google: Google, wire: Callable[..., Wire]) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic)
    google.publish(topic, "one", "two", "three", "four", "five")
    stream = wire(subscription, max_outstanding_messages=2)
    stream.holds("one", "two")
    # What it does not hold another may have.
    (three,) = google.pull(subscription, 1)
    assert three.message.data == b"three"
    # An ack within the stream, one beside it, a nack.
    stream.say(ack_ids=[stream.got[0].ack_id])
    stream.holds("one", "two", "four")
    google.ack(subscription, stream.got[1])
    stream.holds("one", "two", "four", "five")
    stream.say(modify_deadline_ack_ids=[stream.got[2].ack_id], modify_deadline_seconds=[0])
    stream.holds("one", "two", "four", "five", "four")
    stream.end()
    assert stream.is_over() == grpc.StatusCode.OK


def test_a_stream_counts_bytes_too(google: Google, wire: Callable[..., Wire]) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic)
    stream = wire(subscription, max_outstanding_bytes=1000)
    google.publish(topic, "x" * 1000)
    until(lambda: len(stream.got) == 1)
    google.publish(topic, "more")
    # Nobody else is in the way of this one: the stream has left it.
    (more,) = google.pull(subscription)
    google.modify(subscription, 0, more)
    stream.say(ack_ids=[stream.got[0].ack_id])
    stream.holds("x" * 1000, "more")


def test_what_would_not_fit_into_one_answer_comes_in_several(google: Google, wire: Callable[..., Wire]) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic)
    sent = [letter * 1_500_000 for letter in "abc"]
    google.publish(topic, *sent)
    pulled = google.pull(subscription)
    assert [one.message.data.decode() for one in pulled] == sent[:2]
    google.modify(subscription, 0, *pulled)
    wire(subscription).holds(*sent)


def test_what_a_stream_gives_is_out_for_its_deadline_and_makes_room_when_that_is_over(
    google: Google, wire: Callable[..., Wire], pubsub_redis: RedisServer
) -> None:
    topic = google.new_topic()
    subscription = google.new_subscription(topic)
    google.publish(topic, "one")
    stream = wire(subscription, max_outstanding_messages=1, stream_ack_deadline_seconds=300)
    stream.say()  # keeps it alive, and nothing else
    stream.holds("one")
    keys = SubscriptionKeys(*(path.rpartition("/")[2] for path in (topic, subscription)))
    with pubsub_redis.client() as client:
        ((_, until_ms),) = client.zrange(keys.out, 0, -1, withscores=True)
    assert 270 < until_ms / 1000 - time.time() <= 300
    google.publish(topic, "two")
    google.modify(subscription, 1, stream.got[0])
    stream.holds("one", "one")
    assert stream.got[1].delivery_attempt == 2


@pytest.mark.parametrize(
    ("first", "code", "text"),
    [
        ({"stream_ack_deadline_seconds": 5}, grpc.StatusCode.INVALID_ARGUMENT, "from 10 to 600 seconds"),
        ({"modify_deadline_ack_ids": ["a"]}, grpc.StatusCode.INVALID_ARGUMENT, "differ in length"),
        ({"ack_ids": ["a"]}, grpc.StatusCode.INVALID_ARGUMENT, "Invalid ack ID: a"),
    ],
)
def test_a_wrong_request_ends_a_stream(
    google: Google, wire: Callable[..., Wire], first: dict[str, Any], code: grpc.StatusCode, text: str
) -> None:
    stream = wire(google.new_subscription(google.new_topic()), **first)
    assert stream.is_over() == code
    assert text in str(stream.error)


def test_a_stream_names_its_subscription_once(google: Google, wire: Callable[..., Wire]) -> None:
    subscription = google.new_subscription(google.new_topic())
    stream = wire(subscription)
    stream.say(subscription=subscription)
    assert stream.is_over() == grpc.StatusCode.INVALID_ARGUMENT


def test_reading_ends_where_there_is_no_subscription_any_more(google: Google) -> None:
    subscription = google.new_subscription(google.new_topic())
    with reading(google, subscription, Message.ack) as future:
        google.pull_now(subscription)
        google.subscriber.delete_subscription(subscription=subscription)
        with pytest.raises(exceptions.NotFound, match="Subscription not found"):
            future.result(TIMEOUT_S)
