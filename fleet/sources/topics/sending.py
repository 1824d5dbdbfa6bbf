"""What all share that send: to a topic, or back to a subscription."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fleet.broker.errors import InvalidArgument
from fleet.broker.message import Message, checked_message
from fleet.sources.base import Outgoing, never
from fleet.sources.topics.address import Address, Kind
from fleet.sources.topics.broker import Connection


class Sending:
    kind: Kind

    def __init__(self, name: str, *, redis_url: str) -> None:
        self._name = name
        self._uri = Address(self.kind, name).uri
        self._connection = Connection(uri=self._uri, redis_url=redis_url)

    async def close(self) -> None:
        await self._connection.close()


def read(
    messages: Sequence[Outgoing], as_message: Callable[[Outgoing], Message]
) -> tuple[list[tuple[int, Message]], list[str | None]]:
    """Those that can be published, each with its place; and for every place why it cannot, or None."""
    refusals: list[str | None] = [None] * len(messages)
    good: list[tuple[int, Message]] = []
    for place, outgoing in enumerate(messages):
        try:
            good.append((place, as_message(outgoing)))
        except InvalidArgument as error:
            refusals[place] = never(error.message)
    return good, refusals


def message_of(outgoing: Outgoing) -> Message:
    """A group goes as the ordering key."""
    return checked_message(Message(outgoing.body, {}, outgoing.group))
