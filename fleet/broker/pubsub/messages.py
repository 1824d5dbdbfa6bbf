"""Messages as Pub/Sub has them, and as the broker does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fleet.broker.errors import InvalidArgument
from fleet.broker.message import Message, PulledMessage
from fleet.broker.pubsub.wire import PubsubMessage, ReceivedMessage

ANSWER_BYTES = 3 * 1024 * 1024
"""At most in one answer, unless a single message is larger: a client takes 4 MB if nobody tells it to take more."""

_AROUND_BYTES = 200
"""At most, of a message in an answer: its id, its time, and what stands between."""


def published(messages: Sequence[Any]) -> list[Message]:
    for place, one in enumerate(messages):
        if not one.data and not one.attributes:
            raise InvalidArgument(f"message {place}: it has neither data nor attributes, and needs one of them")
    return [Message(one.data, dict(one.attributes), one.ordering_key or None) for one in messages]


def received(message: PulledMessage) -> Any:
    told = PubsubMessage(
        data=message.data,
        attributes=message.attributes,
        message_id=message.id,
        ordering_key=message.ordering_key or "",
    )
    told.publish_time.FromDatetime(message.publish_time)
    return ReceivedMessage(ack_id=message.ack_id, message=told, delivery_attempt=message.delivery_attempt)


def answers(messages: Sequence[PulledMessage]) -> Iterator[list[PulledMessage]]:
    """In their order, as many together as one answer holds."""
    together: list[PulledMessage] = []
    size = 0
    for one in messages:
        more = size_of(one) + len(one.ack_id) + _AROUND_BYTES
        if together and size + more > ANSWER_BYTES:
            yield together
            together, size = [], 0
        together.append(one)
        size += more
    if together:
        yield together


def size_of(message: PulledMessage) -> int:
    """What flow control counts."""
    texts = (message.ordering_key or "", *message.attributes, *message.attributes.values())
    return message.length + sum(len(text.encode()) for text in texts)
