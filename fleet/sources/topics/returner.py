"""Putting messages back into the subscription that they came from, and into no other of their topic."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.broker.errors import SubscriptionNotFound
from fleet.sources.base import Outgoing
from fleet.sources.topics.address import Kind
from fleet.sources.topics.broker import as_source_errors
from fleet.sources.topics.sending import Sending, message_of, read


class Returner(Sending):
    """A publisher for those that replay dead letters. The filter is not asked: they had passed it."""

    kind: Kind = "subscription"

    async def open(self) -> None:
        async with self._connection.opening() as broker:
            if await broker.get_subscription(self._name) is None:
                raise SubscriptionNotFound(self._name)

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        broker = self._connection.opened
        good, answers = read(messages, message_of)
        with as_source_errors(self._uri):
            taken = await broker.put_back(self._name, [message for _, message in good])
        for place, _ in good[taken:]:
            answers[place] = f"subscription {self._name} is full"
        return answers
