"""Sending to a topic. A subscription takes nothing: what it gets is published to its topic."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.broker.errors import InvalidArgument
from fleet.broker.message import Message
from fleet.errors import InvalidConfig, SourceError
from fleet.sources.base import Outgoing, never
from fleet.sources.halfway import told_half_way
from fleet.sources.topics.address import Kind
from fleet.sources.topics.broker import as_source_errors
from fleet.sources.topics.sending import Sending, message_of, read

_BATCH = 500


class TopicPublisher(Sending):
    """A topic knows neither dedup ids nor delays."""

    kind: Kind = "topic"

    async def open(self) -> None:
        async with self._connection.opening() as broker:
            if await broker.get_topic(self._name) is None:
                raise SourceError(f"there is no topic {self._name}; make it with `fleet topics add {self._name}`")

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        broker = self._connection.opened
        good, refusals = read(messages, _message)
        accepted: set[int] = set()
        for first in range(0, len(good), _BATCH):
            batch = good[first : first + _BATCH]
            try:
                with as_source_errors(self._uri):
                    await broker.publish(self._name, [message for _, message in batch])
            except SourceError as error:
                return told_half_way(refusals, accepted=accepted, under_way={place for place, _ in batch}, error=error)
            accepted |= {place for place, _ in batch}
        return refusals


class NoPublisher(Sending):
    """Says where to publish instead, once it can ask."""

    kind: Kind = "subscription"

    async def open(self) -> None:
        async with self._connection.opening() as broker:
            found = await broker.get_subscription(self._name)
            if found is None:
                raise InvalidConfig(f"there is no subscription {self._name}, and a subscription takes no messages")
            raise InvalidConfig(
                f"{self._uri} takes no messages: publish to its topic {found.topic}"
                f" (fleet://topic/{found.topic}, or `fleet topics publish {found.topic}`)"
            )

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        return [never(f"{self._uri} takes no messages")] * len(messages)


def _message(outgoing: Outgoing) -> Message:
    if outgoing.delay_ms:
        raise InvalidArgument("a topic cannot delay a message")
    return message_of(outgoing)
