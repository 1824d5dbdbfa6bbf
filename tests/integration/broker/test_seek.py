"""Seek: what was published before a time is gone, wherever it stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fleet.broker.errors import BrokerError
from fleet.broker.queue import MessageQueue
from tests.clocks import HandClock

Wait = Callable[[float], None]


def publish(queue: MessageQueue, *texts: str, key: str | None = None) -> None:
    queue.publish("topic", [{"data": text.encode(), "ordering_key": key} for text in texts])


def texts(queue: MessageQueue, subscription: str = "sub") -> list[str]:
    return [one.data.decode() for one in queue.pull(subscription, 100)]


@pytest.fixture
def queue(message_queue: MessageQueue) -> MessageQueue:
    message_queue.register_topic("topic")
    return message_queue


def test_what_was_published_before_is_gone_and_the_rest_is_there(
    queue: MessageQueue, wait: Wait, clock: HandClock
) -> None:
    queue.register_subscription("sub", "topic")
    publish(queue, "a", "b")
    wait(1)
    bound_s = clock.now_ms / 1000
    publish(queue, "c")
    assert queue.seek("sub", bound_s) == 2
    assert queue.seek("sub", bound_s) == 0
    assert texts(queue) == ["c"]


def test_what_is_in_flight_goes_too_and_counts_no_more(queue: MessageQueue, wait: Wait, clock: HandClock) -> None:
    queue.register_subscription("sub", "topic", flow_control={"max_messages": 2, "max_bytes": 100})
    publish(queue, "a", "b")
    pulled = queue.pull("sub", 10)
    wait(1)
    bound_s = clock.now_ms / 1000
    publish(queue, "c", "d", "e")
    assert texts(queue) == []
    assert queue.seek("sub", bound_s) == 2
    for one in pulled:
        for verb in (queue.ack, queue.nack):
            with pytest.raises(BrokerError, match="Invalid ack ID"):
                verb(one.ack_id)
    assert texts(queue) == ["c", "d"]


def test_the_next_of_a_key_is_free_when_the_one_in_flight_is_gone(
    queue: MessageQueue, wait: Wait, clock: HandClock
) -> None:
    queue.register_subscription("sub", "topic", message_ordering=True)
    publish(queue, "a1", "a2", key="a")
    publish(queue, "b1", key="b")
    assert texts(queue) == ["a1", "b1"]
    wait(1)
    bound_s = clock.now_ms / 1000
    publish(queue, "a3", "a4", key="a")
    assert texts(queue) == []
    assert queue.seek("sub", bound_s) == 3
    for expected in (["a3"], ["a4"], []):
        pulled = queue.pull("sub", 10)
        assert [one.data.decode() for one in pulled] == expected
        for one in pulled:
            queue.ack(one.ack_id)


def test_a_lane_whose_first_message_is_out_and_stays_is_held_still(
    queue: MessageQueue, wait: Wait, clock: HandClock
) -> None:
    queue.register_subscription("sub", "topic", message_ordering=True)
    publish(queue, "a1", "a2", key="a")
    [a1] = queue.pull("sub", 10)
    assert queue.seek("sub", clock.now_ms / 1000 - 60) == 0
    assert texts(queue) == []
    queue.ack(a1.ack_id)
    assert texts(queue) == ["a2"]


def test_another_subscription_keeps_its_copy(
    queue: MessageQueue, wait: Wait, clock: HandClock, stored: Callable[[], Mapping[str, int]]
) -> None:
    for name in ("sub", "other"):
        queue.register_subscription(name, "topic")
    before = stored()
    publish(queue, "a", "b")
    wait(1)
    assert queue.seek("sub", clock.now_ms / 1000) == 2
    assert texts(queue) == []
    pulled = queue.pull("other", 10)
    assert [one.data for one in pulled] == [b"a", b"b"]
    assert queue.seek("other", clock.now_ms / 1000) == 2
    assert texts(queue, "other") == []
    wait(60)
    bodies = {key: count for key, count in stored().items() if not key.endswith("state")}
    assert bodies == {key: count for key, count in before.items() if not key.endswith("state")}


@pytest.mark.parametrize("time", [-1, float("nan"), float("inf"), True, "now", None])
def test_a_time_that_is_none_is_refused(queue: MessageQueue, time: Any) -> None:
    queue.register_subscription("sub", "topic")
    with pytest.raises(BrokerError) as refused:
        queue.seek("sub", time)
    assert refused.value.code == 3


def test_a_subscription_that_is_not_there_is_named(queue: MessageQueue) -> None:
    with pytest.raises(BrokerError, match="Subscription not found: nobody"):
        queue.seek("nobody", 0)
