"""Publish: to every subscription of a topic that wants the message, all or nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from fleet.broker.counts import SUBSCRIPTION, TOPIC
from fleet.broker.directory import Audience, Directory
from fleet.broker.errors import FailedPrecondition, Unsure
from fleet.broker.message import Header, Message, pack
from fleet.broker.names import message_id
from fleet.errors import StateError, StateUnavailable
from fleet.metrics.counters import Counters
from fleet.state.topic import Copies, Published
from fleet.words import number

log = logging.getLogger("fleet.broker")

MOST_COPIES = 5_000
"""In one call: a script that runs for longer holds up everybody."""
_MOST_BYTES = 8 * 1024 * 1024


class Publisher:
    def __init__(self, directory: Directory, counters: Counters) -> None:
        self._directory = directory
        self._counters = counters
        self._full: set[str] = set()
        """Subscriptions that could not take what came last, as was said once."""

    async def publish(self, topic: str, messages: Sequence[Message]) -> list[str]:
        """The ids of the messages, which are checked already."""
        ids: list[str] = []

        async def send(audience: Audience) -> None:
            # Of a large publish the chunks before this one are published: it goes on where it was.
            for chunk in _chunks(messages, len(ids), len(audience.names)):
                found = await audience.topic.publish(
                    [copies(audience, _header(one), one.data) for one in chunk],
                    audience.names,
                )
                keys, incarnation = audience.topic.keys, audience.topic.incarnation
                ids.extend(message_id(keys.prefix, incarnation, 0, number) for number in found.numbers)
                self._count(topic, found)
                self._warn(topic, found)

        try:
            await self._directory.with_audience(topic, send)
        except StateError as error:
            if not ids:
                raise
            # Not what the error says by itself, that nothing happened: it is about a chunk that is not the first.
            raise Unsure(
                f"the first {len(ids)} of {number(len(messages), 'message')} are published, the others may be: {error}"
            ) from error
        return ids

    async def put_back(self, topic: str, subscription: str, messages: Sequence[Message]) -> int:
        """For one subscription alone, whatever its filter says. Returns how many it had room for: the first ones."""

        async def send(audience: Audience) -> int:
            if subscription not in audience.names:
                raise FailedPrecondition(f"subscription {subscription} has no topic any more: {topic} was deleted")
            place = audience.names.index(subscription)
            to = [(place, audience.ordered[place])]
            copied = [Copies(pack(_header(one), one.data), one.ordering_key or "", to) for one in messages]
            found = await audience.topic.publish(copied, audience.names)
            return len(messages) - found.full.get(subscription, 0)

        return await self._directory.with_audience(topic, send)

    def _count(self, topic: str, found: Published) -> None:
        self._counters.add(TOPIC, topic, "published", len(found.numbers))
        for name, count in found.full.items():
            self._counters.add(SUBSCRIPTION, name, "full", count)

    def _warn(self, topic: str, found: Published) -> None:
        for name, count in found.full.items():
            if name not in self._full:
                log.warning("subscription %s of topic %s is full: it did not get %d messages", name, topic, count)
        self._full = set(found.full)


def copies(audience: Audience, header: Header, data: bytes, *, place: int = 0) -> Copies:
    """Who gets a message. `place`: in the outbox that it comes from."""
    wanted = [one for one, takes in enumerate(audience.takes) if takes(header.attributes)]
    return Copies(pack(header, data), header.key, [(one, audience.ordered[one]) for one in wanted], place)


def _header(message: Message) -> Header:
    return Header(attributes=message.attributes, key=message.ordering_key or "")


def _chunks(messages: Sequence[Message], begin: int, copies_each: int) -> Iterator[Sequence[Message]]:
    most = max(1, MOST_COPIES // max(1, copies_each))
    while begin < len(messages):
        end, size = begin, 0
        while end < len(messages) and end - begin < most and (end == begin or size < _MOST_BYTES):
            size += len(messages[end].data)
            end += 1
        yield messages[begin:end]
        begin = end


def was_never_sent(error: StateUnavailable) -> bool:
    """Whether nothing can have been published: there was no connection to ask on."""
    return "connecting to" in str(error)
