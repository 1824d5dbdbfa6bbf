"""Messages between Pub/Sub and the broker, and how many of them an answer holds."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from google.pubsub_v1 import types

from fleet.broker.errors import InvalidArgument
from fleet.broker.message import Message, PulledMessage
from fleet.broker.pubsub.messages import ANSWER_BYTES, answers, published, received

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def pulled(name: str, size: int = 0) -> PulledMessage:
    return PulledMessage(
        id=name,
        data=b"x" * size,
        attributes={"kind": "é"},
        publish_time=MOMENT,
        ordering_key=None,
        delivery_attempt=3,
        ack_id=f"ack-{name}",
    )


def test_a_message_is_told_with_all_it_has_to_the_microsecond() -> None:
    told = types.ReceivedMessage.wrap(received(pulled("one", 3)))
    assert (told.ack_id, told.delivery_attempt) == ("ack-one", 3)
    message = told.message
    assert (message.message_id, message.data, dict(message.attributes)) == ("one", b"xxx", {"kind": "é"})
    assert (message.ordering_key, message.publish_time) == ("", MOMENT)


def test_what_is_published_is_what_was_sent() -> None:
    pb = types.PubsubMessage.pb()
    assert published([pb(data=b"\xff", ordering_key="k"), pb(attributes={"a": "b"})]) == [
        Message(b"\xff", {}, "k"),
        Message(b"", {"a": "b"}, None),
    ]


def test_a_message_of_nothing_is_refused_by_its_place() -> None:
    pb = types.PubsubMessage.pb()
    with pytest.raises(InvalidArgument, match="message 1: it has neither data nor attributes"):
        published([pb(data=b"x"), pb(ordering_key="k")])


def test_answers_hold_as_much_as_a_client_takes_and_a_larger_message_is_alone() -> None:
    half = ANSWER_BYTES // 2
    sizes = {"a": half, "b": half - 1000, "c": 2000, "d": 2 * ANSWER_BYTES, "e": 0}
    messages = [pulled(name, size) for name, size in sizes.items()]
    assert [[one.id for one in answer] for answer in answers(messages)] == [["a", "b"], ["c"], ["d"], ["e"]]
    assert list(answers([])) == []


def test_many_small_messages_fit_into_what_was_reckoned() -> None:
    long_key = msgspec.structs.replace(pulled("one"), id="0" * 36, ordering_key="k" * 1024, ack_id="a" * 1500)
    for kind in (pulled("one"), long_key):
        for answer in answers([kind] * 5000):
            told = types.PullResponse.pb()(received_messages=[received(one) for one in answer])
            assert told.ByteSize() <= ANSWER_BYTES
