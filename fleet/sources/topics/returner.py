"""Putting messages back into the subscription that they came from, and into no other of their topic."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.broker.errors import InvalidArgument, SubscriptionNotFound
from fleet.broker.message import Message, checked_message
from fleet.sources.base import Outgoing, never
from fleet.sources.topics.address import Address
from fleet.sources.topics.broker import Connection, as_source_errors


class Returner:
    """A publisher for those that replay dead letters. The filter is not asked: they had passed it."""

    def __init__(self, *, subscription: str, redis_url: str) -> None:
        self._name = subscription
        self._uri = Address("subscription", subscription).uri
        self._connection = Connection(uri=self._uri, redis_url=redis_url)

    async def open(self) -> None:
        async with self._connection.opening() as broker:
            if await broker.get_subscription(self._name) is None:
                raise SubscriptionNotFound(self._name)

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        broker = self._connection.opened
        answers: list[str | None] = [None] * len(messages)
        good: list[tuple[int, Message]] = []
        for place, outgoing in enumerate(messages):
            try:
                good.append((place, checked_message(Message(outgoing.body, {}, outgoing.group))))
            except InvalidArgument as error:
                answers[place] = never(error.message)
        with as_source_errors(self._uri):
            taken = await broker.put_back(self._name, [message for _, message in good])
        for place, _ in good[taken:]:
            answers[place] = f"subscription {self._name} is full"
        return answers

    async def close(self) -> None:
        await self._connection.close()
