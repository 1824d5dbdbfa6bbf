"""Sending to a topic. A subscription takes nothing: what it gets is published to its topic."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.broker.errors import InvalidArgument
from fleet.broker.message import Message, checked_message
from fleet.errors import InvalidConfig, SourceError
from fleet.sources.base import Outgoing, never
from fleet.sources.halfway import told_half_way
from fleet.sources.topics.address import Address
from fleet.sources.topics.broker import Connection, as_source_errors

_BATCH = 500


class TopicPublisher:
    """A group goes as the ordering key. A topic knows neither dedup ids nor delays."""

    def __init__(self, *, topic: str, redis_url: str) -> None:
        self._topic = topic
        self._uri = Address("topic", topic).uri
        self._connection = Connection(uri=self._uri, redis_url=redis_url)

    async def open(self) -> None:
        async with self._connection.opening() as broker:
            if await broker.get_topic(self._topic) is None:
                raise SourceError(f"there is no topic {self._topic}; make it with `fleet topics add {self._topic}`")

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        broker = self._connection.opened
        refusals: list[str | None] = [None] * len(messages)
        good: list[tuple[int, Message]] = []
        for place, outgoing in enumerate(messages):
            try:
                good.append((place, _message(outgoing)))
            except InvalidArgument as error:
                refusals[place] = never(error.message)
        accepted: set[int] = set()
        for first in range(0, len(good), _BATCH):
            batch = good[first : first + _BATCH]
            try:
                with as_source_errors(self._uri):
                    await broker.publish(self._topic, [message for _, message in batch])
            except SourceError as error:
                return told_half_way(refusals, accepted=accepted, under_way={place for place, _ in batch}, error=error)
            accepted |= {place for place, _ in batch}
        return refusals

    async def close(self) -> None:
        await self._connection.close()


class NoPublisher:
    """Says where to publish instead, once it can ask."""

    def __init__(self, *, subscription: str, redis_url: str) -> None:
        self._name = subscription
        self._uri = Address("subscription", subscription).uri
        self._connection = Connection(uri=self._uri, redis_url=redis_url)

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

    async def close(self) -> None:
        await self._connection.close()


def _message(outgoing: Outgoing) -> Message:
    if outgoing.delay_ms:
        raise InvalidArgument("a topic cannot delay a message")
    return checked_message(Message(outgoing.body, {}, outgoing.group))
