"""The behaviour requirements of seed 001: BR-001 to BR-022."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from functools import partial
from threading import Barrier
from typing import Any

import pytest

from fleet.broker.errors import BrokerError
from fleet.broker.message import Message, PulledMessage
from fleet.broker.queue import MessageQueue

Wait = Callable[[float], None]


def subscribed(queue: MessageQueue, name: str = "sub", **options: Any) -> MessageQueue:
    """With a subscription to the topic `topic`."""
    queue.register_topic("topic")
    queue.register_subscription(name, "topic", **options)
    return queue


def published(queue: MessageQueue, *texts: str, **fields: Any) -> list[str]:
    return queue.publish("topic", [Message(text.encode(), **fields) for text in texts])


def texts(messages: Sequence[PulledMessage]) -> list[str]:
    return [message.data.decode() for message in messages]


def refused(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(BrokerError) as error:
        call()
    return error.value.code, error.value.message


def is_invalid(queue: MessageQueue, ack_id: str) -> bool:
    """Whether all three verbs refuse it as the seed says."""
    verbs = (queue.ack, queue.nack, partial(queue.modify_ack_deadline, seconds=60))
    answers = {refused(partial(verb, ack_id)) for verb in verbs}
    return answers == {(3, f"Invalid ack ID: {ack_id}")}


def test_br_001_whoever_asks_and_however_many_at_once_all_get_the_same_instance(
    get_instance: Callable[[], MessageQueue],
) -> None:
    together = Barrier(8)

    def ask(_: int) -> MessageQueue:
        together.wait()
        return get_instance()

    with ThreadPoolExecutor(8) as threads:
        assert len({id(instance) for instance in threads.map(ask, range(8))}) == 1


def test_br_002_a_registered_topic_is_known_has_metadata_and_is_empty(message_queue: MessageQueue) -> None:
    assert message_queue.get_topic("topic") is None
    message_queue.register_topic("topic")
    topic = message_queue.get_topic("topic")
    assert topic is not None
    assert (topic.name, topic.created.tzinfo) == ("topic", UTC)
    assert [one.name for one in message_queue.get_all_topics()] == ["topic"]
    message_queue.register_subscription("sub", "topic")
    assert message_queue.pull("sub", 10) == []


def test_br_003_a_publish_gives_each_an_id_and_a_time_and_every_subscription_a_copy(
    message_queue: MessageQueue,
) -> None:
    subscribed(message_queue).register_subscription("other", "topic")
    same = {"id": "msg-1", "data": b"x", "attributes": {"a": "1"}, "orderingKey": "k"}
    ids = message_queue.publish("topic", [same, same])
    assert len(set(ids)) == 2
    for name in ("sub", "other"):
        pulled = message_queue.pull(name, 10)
        assert [one.id for one in pulled] == ids
        for one in pulled:
            assert (one.data, one.attributes, one.ordering_key, one.length) == (b"x", {"a": "1"}, "k", 1)
            assert (one.publish_time.tzinfo, one.delivery_attempt) == (UTC, 1)
    assert refused(lambda: message_queue.publish("nowhere", [same])) == (5, "Topic not found: nowhere")


def test_br_004_without_subscriptions_messages_get_ids_and_are_discarded(message_queue: MessageQueue) -> None:
    message_queue.register_topic("topic")
    assert len(set(published(message_queue, "a", "b"))) == 2
    message_queue.register_subscription("late", "topic")
    assert message_queue.pull("late", 10) == []


def test_br_005_a_pull_leases_up_to_so_many_messages_under_ack_ids_of_their_own(message_queue: MessageQueue) -> None:
    published(subscribed(message_queue), "a", "b", "c")
    first, rest = message_queue.pull("sub", 2), message_queue.pull("sub", 10)
    assert (texts(first), texts(rest), message_queue.pull("sub", 10)) == (["a", "b"], ["c"], [])
    assert len({one.ack_id for one in first + rest}) == 3
    assert refused(lambda: message_queue.pull("nobody", 1)) == (5, "Subscription not found: nobody")


def test_br_006_an_acked_message_is_gone_and_its_deadline_with_it(message_queue: MessageQueue, wait: Wait) -> None:
    published(subscribed(message_queue, flow_control={"max_messages": 1}), "a", "b")
    [a] = message_queue.pull("sub", 10)
    message_queue.ack(a.ack_id)
    [b] = message_queue.pull("sub", 10)
    message_queue.ack(b.ack_id)
    wait(3600)
    assert (b.data, message_queue.pull("sub", 10)) == (b"b", [])


def test_br_007_a_nacked_message_is_there_at_once_as_the_next_attempt(message_queue: MessageQueue) -> None:
    [told] = published(subscribed(message_queue), "a")
    for attempt in (1, 2, 3, 4):
        [pulled] = message_queue.pull("sub", 10)
        assert (pulled.id, pulled.delivery_attempt) == (told, attempt)
        message_queue.nack(pulled.ack_id)
        assert is_invalid(message_queue, pulled.ack_id)


@pytest.mark.parametrize(("options", "deadline_s"), [({}, 10), ({"ack_deadline_seconds": 600}, 600)])
def test_br_008_a_message_comes_back_when_its_deadline_has_passed(
    message_queue: MessageQueue, wait: Wait, options: Mapping[str, Any], deadline_s: float
) -> None:
    published(subscribed(message_queue, **options), "a")
    message_queue.pull("sub", 10)
    wait(deadline_s - 0.1)
    assert message_queue.pull("sub", 10) == []
    wait(0.2)
    [again] = message_queue.pull("sub", 10)
    assert again.delivery_attempt == 2
    for wrong in (9, 601):
        code, _ = refused(partial(message_queue.register_subscription, "s", "topic", ackDeadlineSeconds=wrong))
        assert code == 3


def test_br_009_a_deadline_can_be_moved_again_and_again(message_queue: MessageQueue, wait: Wait) -> None:
    published(subscribed(message_queue), "a")
    [pulled] = message_queue.pull("sub", 10)
    for _ in range(3):
        message_queue.modify_ack_deadline(pulled.ack_id, 15)
        wait(14.9)
        assert message_queue.pull("sub", 10) == []
    wait(0.2)
    [again] = message_queue.pull("sub", 10)
    message_queue.modify_ack_deadline(again.ack_id, 0)  # a nack
    [third] = message_queue.pull("sub", 10)
    assert third.delivery_attempt == 3
    for wrong in (-1, 601):
        code, message = refused(partial(message_queue.modify_ack_deadline, third.ack_id, wrong))
        assert (code, "ack ID" in message) == (3, False)


def test_br_010_with_ordering_one_of_a_key_is_out_and_other_keys_and_none_go_on(message_queue: MessageQueue) -> None:
    subscribed(message_queue, message_ordering=True)
    keys = [("a1", "a"), ("-1", None), ("a2", "a"), ("b1", "b"), ("-2", None), ("a3", "a"), ("b2", "b")]
    message_queue.publish("topic", [Message(text.encode(), {}, key) for text, key in keys])
    a1, none_1, b1, none_2 = message_queue.pull("sub", 10)
    assert texts([a1, none_1, b1, none_2]) == ["a1", "-1", "b1", "-2"]
    assert message_queue.pull("sub", 10) == []
    message_queue.nack(a1.ack_id)
    [a1] = message_queue.pull("sub", 10)
    assert (a1.data, a1.delivery_attempt) == (b"a1", 2)
    message_queue.ack(a1.ack_id)
    message_queue.ack(b1.ack_id)
    assert texts(message_queue.pull("sub", 10)) == ["a2", "b2"]


def test_br_010_what_waits_for_its_backoff_holds_its_key(message_queue: MessageQueue, wait: Wait) -> None:
    subscribed(message_queue, message_ordering=True, retry_policy={"minimum_backoff": 5, "maximum_backoff": 5})
    published(message_queue, "a1", "a2", ordering_key="a")
    [a1] = message_queue.pull("sub", 10)
    message_queue.nack(a1.ack_id)
    assert message_queue.pull("sub", 10) == []
    wait(5.1)
    assert texts(message_queue.pull("sub", 10)) == ["a1"]


def test_br_011_a_deleted_subscription_leaves_nothing(message_queue: MessageQueue, wait: Wait) -> None:
    published(subscribed(message_queue), "a", "b")
    [a] = message_queue.pull("sub", 1)
    message_queue.unregister_subscription("sub")
    assert (message_queue.subscription_exists("sub"), message_queue.get_subscription("sub")) == (False, None)
    assert refused(lambda: message_queue.pull("sub", 1)) == (5, "Subscription not found: sub")
    message_queue.register_subscription("sub", "topic")
    wait(10.1)
    assert (message_queue.pull("sub", 10), is_invalid(message_queue, a.ack_id)) == ([], True)


def test_br_012_a_deleted_topic_detaches_its_subscriptions_and_takes_their_messages(
    message_queue: MessageQueue,
) -> None:
    published(subscribed(message_queue), "a", "b")
    message_queue.unregister_topic("topic")
    assert (message_queue.topic_exists("topic"), message_queue.get_all_topics()) == (False, [])
    assert [one.name for one in message_queue.get_all_subscriptions()] == ["sub"]
    assert message_queue.pull("sub", 10) == []
    assert refused(lambda: published(message_queue, "c")) == (5, "Topic not found: topic")


@pytest.mark.parametrize(
    ("limits", "at_once"), [({"max_messages": 2}, 2), ({"max_bytes": 10}, 2), ({"max_messages": 9, "max_bytes": 1}, 1)]
)
def test_br_013_a_pull_gives_nothing_while_a_limit_is_reached(
    message_queue: MessageQueue, limits: Mapping[str, int], at_once: int
) -> None:
    published(subscribed(message_queue, flow_control=limits), *[f"six-{i:02}" for i in range(6)])
    pulled = message_queue.pull("sub", 10)
    assert (len(pulled), message_queue.pull("sub", 10)) == (at_once, [])
    message_queue.ack(pulled[0].ack_id)
    assert (len(message_queue.pull("sub", 10)), message_queue.pull("sub", 10)) == (1, [])


def test_br_014_what_is_acked_nacked_or_lapsed_is_in_flight_no_more(message_queue: MessageQueue, wait: Wait) -> None:
    backoff = {"minimum_backoff": 60, "maximum_backoff": 60}
    subscribed(message_queue, retry_policy=backoff, flow_control={"max_messages": 3, "max_bytes": 1000})
    published(message_queue, *[str(i) for i in range(9)])
    acked, nacked, _ = message_queue.pull("sub", 10)
    assert message_queue.pull("sub", 10) == []
    message_queue.ack(acked.ack_id)
    message_queue.nack(nacked.ack_id)
    assert texts(message_queue.pull("sub", 10)) == ["3", "4"]
    wait(10.1)
    assert texts(message_queue.pull("sub", 10)) == ["5", "6", "7"]


@pytest.mark.parametrize("by_nack", [True, False])
def test_br_015_each_attempt_waits_twice_as_long_up_to_the_most(
    message_queue: MessageQueue, wait: Wait, by_nack: bool
) -> None:
    published(subscribed(message_queue, retry_policy={"minimum_backoff": 10, "maximum_backoff": 25}), "a")
    for backoff_s in (10, 20, 25, 25):
        [pulled] = message_queue.pull("sub", 10)
        if by_nack:
            message_queue.nack(pulled.ack_id)
        # In one step: a backoff begins at the deadline, whoever notices when.
        wait((0 if by_nack else 10) + backoff_s - 0.1)
        assert message_queue.pull("sub", 10) == []
        wait(0.2)


@pytest.mark.parametrize("by_nack", [True, False])
def test_br_016_after_the_last_attempt_a_message_moves_as_it_is(
    message_queue: MessageQueue, wait: Wait, by_nack: bool
) -> None:
    subscribed(message_queue, dead_letter_policy={"dead_letter_topic": "dead", "max_delivery_attempts": 2})
    message_queue.register_topic("dead")
    message_queue.register_subscription("letters", "dead")
    published(message_queue, "a", attributes={"kind": "order"}, ordering_key="k")
    seen = []
    for _ in range(2):
        seen += message_queue.pull("sub", 10)
        if by_nack:
            message_queue.nack(seen[-1].ack_id)
        else:
            wait(10.1)
    assert message_queue.pull("sub", 10) == []
    wait(1)
    [letter] = message_queue.pull("letters", 10)
    assert (letter.data, letter.attributes, letter.ordering_key) == (b"a", {"kind": "order"}, "k")
    assert (letter.publish_time, letter.delivery_attempt) == (seen[0].publish_time, 1)
    assert [one.delivery_attempt for one in seen] == [1, 2]
    message_queue.ack(letter.ack_id)
    wait(60)
    assert (message_queue.pull("sub", 10), message_queue.pull("letters", 10)) == ([], [])


def test_br_016_a_letter_waits_for_a_topic_that_would_keep_it(
    message_queue: MessageQueue, wait: Wait, caplog: pytest.LogCaptureFixture
) -> None:
    subscribed(message_queue, dead_letter_policy={"dead_letter_topic": "dead", "max_delivery_attempts": 1})
    published(message_queue, "a")
    message_queue.nack(message_queue.pull("sub", 10)[0].ack_id)
    wait(1)
    assert [record.levelno for record in caplog.records if "dead" in record.getMessage()] != []
    message_queue.register_topic("dead")
    wait(60)
    message_queue.register_subscription("letters", "dead")
    wait(60)
    assert texts(message_queue.pull("letters", 10)) == ["a"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"data": bytes(10 * 1024 * 1024)},
        {"data": b"", "attributes": {"k" * 257: ""}},
        {"data": b"", "attributes": {"k": "v" * 1025}},
        {"data": b"", "attributes": {"": "v"}},
        {"data": b"", "attributes": {"goog": "v"}},
        {"data": b"", "attributes": {"googclient_x": "v"}},
        {"data": b"", "attributes": {"k": 1}},
        {"data": b"", "ordering_key": "\x1e"},
    ],
)
def test_br_017_a_publish_with_one_wrong_message_publishes_none(
    message_queue: MessageQueue, wrong: Mapping[str, object]
) -> None:
    subscribed(message_queue)
    code, message = refused(lambda: message_queue.publish("topic", [Message(b"good"), wrong]))
    assert (code, message.startswith("message 1: ")) == (3, True)
    assert message_queue.pull("sub", 10) == []


def test_br_018_only_the_newest_ack_id_of_a_message_counts(message_queue: MessageQueue, wait: Wait) -> None:
    published(subscribed(message_queue), "a")
    seen = message_queue.pull("sub", 10)
    wait(10.1)
    assert is_invalid(message_queue, seen[0].ack_id)  # expired, and not yet shown again
    seen += message_queue.pull("sub", 10)
    message_queue.nack(seen[1].ack_id)
    seen += message_queue.pull("sub", 10)
    assert len({one.ack_id for one in seen}) == 3
    assert [is_invalid(message_queue, one.ack_id) for one in seen[:2]] == [True, True]
    message_queue.ack(seen[2].ack_id)
    assert is_invalid(message_queue, seen[2].ack_id)
    assert is_invalid(message_queue, "abc123")


def test_br_019_messages_come_in_publish_order_and_what_comes_back_keeps_its_place(message_queue: MessageQueue) -> None:
    published(subscribed(message_queue), "a", "b")
    published(message_queue, "c", ordering_key="ignored where ordering is off")
    published(message_queue, "d")
    for one in message_queue.pull("sub", 2):
        message_queue.nack(one.ack_id)
    assert texts(message_queue.pull("sub", 10)) == ["a", "b", "c", "d"]


def test_br_020_of_a_lease_that_ended_nothing_is_left(
    message_queue: MessageQueue, wait: Wait, stored: Callable[[], Mapping[str, int]]
) -> None:
    def many() -> None:
        published(message_queue, *[str(i) for i in range(30)], ordering_key="k")
        published(message_queue, *[str(i) for i in range(100)])
        while pulled := message_queue.pull("sub", 50):
            for one in pulled:
                (message_queue.ack if one.delivery_attempt > 1 else message_queue.nack)(one.ack_id)

    subscribed(message_queue, message_ordering=True)
    many()
    wait(60)
    before = stored()
    many()
    wait(60)
    assert stored() == before


def test_br_021_a_deleted_topic_ends_leases_and_delivers_no_more(message_queue: MessageQueue, wait: Wait) -> None:
    published(subscribed(message_queue), "a", "b")
    [a] = message_queue.pull("sub", 1)
    message_queue.unregister_topic("topic")
    wait(10.1)
    assert (message_queue.pull("sub", 10), is_invalid(message_queue, a.ack_id)) == ([], True)
    message_queue.register_topic("topic")
    published(message_queue, "c")
    assert (message_queue.pull("sub", 10), message_queue.get_subscriptions_for_topic("topic")) == ([], [])


def test_br_022_a_subscription_of_10000_messages_gets_no_more_until_it_has_room(
    message_queue: MessageQueue, caplog: pytest.LogCaptureFixture
) -> None:
    subscribed(message_queue, "full")
    for _ in range(10):
        published(message_queue, *["old"] * 1000)
    message_queue.register_subscription("other", "topic")
    assert len(published(message_queue, "discarded")) == 1
    assert texts(message_queue.pull("other", 10)) == ["discarded"]
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [text for text in warned if "full" in text] != []
    message_queue.ack(message_queue.pull("full", 1)[0].ack_id)
    published(message_queue, "kept", "discarded, too")
    found = []
    while pulled := message_queue.pull("full", 1000):
        found += texts(pulled)
    assert found == ["old"] * 9999 + ["kept"]


def test_br_022_a_subscription_of_100_mb_gets_no_more(message_queue: MessageQueue) -> None:
    subscribed(message_queue, "full")
    for i in range(13):
        message_queue.publish("topic", [Message(bytes([i]) * 10_000_000)])
    found = []
    while pulled := message_queue.pull("full", 1):
        found += pulled
    # Up to the message that reaches it, whether a megabyte is counted as 1,000,000 bytes or as 1,048,576.
    assert [one.data[0] for one in found] in (list(range(10)), list(range(11)))
