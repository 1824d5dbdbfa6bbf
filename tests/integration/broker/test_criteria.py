"""The acceptance criteria of seed 001, as they are written there: AC-001 to AC-013."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from fleet.broker.queue import MessageQueue

Wait = Callable[[float], None]


def message(data: str, *, number: int = 1, ordering_key: str | None = None) -> dict[str, object]:
    """One of the seed's examples, with all that those carry."""
    return {
        "id": f"msg-{number}",
        "data": data.encode(),
        "attributes": {},
        "publishTime": datetime.now(UTC),
        "orderingKey": ordering_key,
        "deliveryAttempt": 1,
    }


def test_ac_001_the_instance_is_one(get_instance: Callable[[], MessageQueue]) -> None:
    assert get_instance() is get_instance()


def test_ac_002_a_topic_is_there_once_it_is_registered(message_queue: MessageQueue) -> None:
    assert message_queue.topic_exists("test-topic") is False
    message_queue.register_topic("test-topic")
    assert message_queue.topic_exists("test-topic") is True


def test_ac_003_what_is_published_can_be_pulled(message_queue: MessageQueue) -> None:
    message_queue.register_topic("test-topic")
    message_queue.register_subscription("test-sub", "test-topic")
    assert len(message_queue.publish("test-topic", [message("Hello")])) == 1
    pulled = message_queue.pull("test-sub", 10)
    assert [one.data.decode() for one in pulled] == ["Hello"]


def test_ac_004_each_subscription_gets_a_copy(message_queue: MessageQueue) -> None:
    message_queue.register_topic("test-topic")
    message_queue.register_subscription("sub-1", "test-topic")
    message_queue.register_subscription("sub-2", "test-topic")
    message_queue.publish("test-topic", [message("test")])
    assert len(message_queue.pull("sub-1", 10)) == 1
    assert len(message_queue.pull("sub-2", 10)) == 1


def test_ac_005_an_acked_message_is_not_pulled_again(message_queue: MessageQueue) -> None:
    message_queue.register_topic("test-topic")
    message_queue.register_subscription("test-sub", "test-topic")
    message_queue.publish("test-topic", [message("test")])
    [pulled] = message_queue.pull("test-sub", 10)
    message_queue.ack(pulled.ack_id)
    assert message_queue.pull("test-sub", 10) == []


def test_ac_006_a_nacked_message_is_pulled_again_at_once(message_queue: MessageQueue) -> None:
    message_queue.register_topic("test-topic")
    message_queue.register_subscription("test-sub", "test-topic")
    message_queue.publish("test-topic", [message("test")])
    [pulled] = message_queue.pull("test-sub", 10)
    assert pulled.delivery_attempt == 1
    message_queue.nack(pulled.ack_id)
    [again] = message_queue.pull("test-sub", 10)
    assert again.delivery_attempt == 2


def test_ac_007_a_message_whose_deadline_passed_is_pulled_again(message_queue: MessageQueue, wait: Wait) -> None:
    message_queue.register_topic("test-topic")
    message_queue.register_subscription("test-sub", "test-topic", {"ackDeadlineSeconds": 10})
    message_queue.publish("test-topic", [message("test")])
    assert len(message_queue.pull("test-sub", 10)) == 1
    wait(10.1)
    [again] = message_queue.pull("test-sub", 10)
    assert again.delivery_attempt == 2


def test_ac_008_a_modified_deadline_counts_instead(message_queue: MessageQueue, wait: Wait) -> None:
    message_queue.register_topic("test-topic")
    message_queue.register_subscription("test-sub", "test-topic", {"ackDeadlineSeconds": 10})
    message_queue.publish("test-topic", [message("test")])
    [pulled] = message_queue.pull("test-sub", 10)
    message_queue.modify_ack_deadline(pulled.ack_id, 15)
    wait(12)
    assert message_queue.pull("test-sub", 10) == []
    message_queue.ack(pulled.ack_id)


def test_ac_009_of_one_key_the_next_comes_when_the_one_before_it_is_acked(message_queue: MessageQueue) -> None:
    message_queue.register_topic("test-topic")
    message_queue.register_subscription("test-sub", "test-topic", {"messageOrdering": True})
    both = [message("first", ordering_key="user-123"), message("second", number=2, ordering_key="user-123")]
    message_queue.publish("test-topic", both)
    [first] = message_queue.pull("test-sub", 10)
    assert first.data.decode() == "first"
    assert message_queue.pull("test-sub", 10) == []
    message_queue.ack(first.ack_id)
    [second] = message_queue.pull("test-sub", 10)
    assert second.data.decode() == "second"


def test_ac_010_publishing_to_nobody_gives_ids(message_queue: MessageQueue) -> None:
    message_queue.register_topic("test-topic")
    assert len(message_queue.publish("test-topic", [message("test")])) == 1


def test_ac_011_the_subscriptions_of_a_topic_are_listed(message_queue: MessageQueue) -> None:
    message_queue.register_topic("test-topic")
    message_queue.register_subscription("sub-1", "test-topic")
    message_queue.register_subscription("sub-2", "test-topic")
    assert sorted(one.name for one in message_queue.get_subscriptions_for_topic("test-topic")) == ["sub-1", "sub-2"]


def test_ac_012_a_deleted_topic_leaves_its_subscription_detached(message_queue: MessageQueue) -> None:
    message_queue.register_topic("test-topic")
    message_queue.register_subscription("test-sub", "test-topic")
    message_queue.unregister_topic("test-topic")
    assert message_queue.topic_exists("test-topic") is False
    assert message_queue.subscription_exists("test-sub") is True
    subscription = message_queue.get_subscription("test-sub")
    assert subscription is not None
    assert subscription.topic == "test-topic"


def test_ac_013_without_a_key_messages_come_as_they_were_published(message_queue: MessageQueue) -> None:
    message_queue.register_topic("test-topic")
    message_queue.register_subscription("test-sub", "test-topic")
    message_queue.publish("test-topic", [message(text, number=number) for number, text in enumerate("ABC", 1)])
    pulled = message_queue.pull("test-sub", 10)
    assert [one.data.decode() for one in pulled] == ["A", "B", "C"]
