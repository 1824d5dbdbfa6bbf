"""Which topics and subscriptions there are, as this process knows them.

What is remembered may be out of date. A script that it is used with says so, and then it is read again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec

from fleet.broker import filter as filters
from fleet.broker.errors import FailedPrecondition, SubscriptionNotFound, TopicNotFound
from fleet.broker.names import check_subscription_name, check_topic_name
from fleet.broker.records import SubscriptionRecord, TopicRecord
from fleet.state.catalogue import Catalogue
from fleet.state.connect import Client
from fleet.state.engine import Ahead, Engine, Stale
from fleet.state.topic import Topic

T = TypeVar("T")
RecordT = TypeVar("RecordT", TopicRecord, SubscriptionRecord)
_MOST_REMEMBERED = 10_000
_TRIES = 5
_encode = msgspec.json.Encoder().encode


class Seen(msgspec.Struct, Generic[RecordT], frozen=True):
    """A record, and the text that it was read from: a change is only made to what was seen."""

    text: str
    record: RecordT


class Audience(msgspec.Struct, frozen=True):
    """A topic, and who subscribes to it."""

    topic: Topic
    names: tuple[str, ...]
    takes: tuple[filters.Test, ...]
    """Of each, whether it wants a message with these attributes."""
    ordered: tuple[bool, ...]


class Pulled(msgspec.Struct, frozen=True):
    """A subscription, and where its messages are."""

    name: str
    record: SubscriptionRecord
    engine: Engine


class Directory:
    def __init__(self, client: Client, now_ms: Callable[[], str]) -> None:
        self.client = client
        self.catalogue = Catalogue(client)
        self.now_ms = now_ms
        self._topics: dict[str, Audience] = {}
        self._subscriptions: dict[str, Pulled] = {}

    # As the catalogue has it now ----------------------------------------------------------------------

    async def topic(self, name: str) -> Seen[TopicRecord] | None:
        text = await self.catalogue.get("topics", check_topic_name(name))
        return Seen(text, msgspec.json.decode(text, type=TopicRecord)) if text else None

    async def subscription(self, name: str) -> Seen[SubscriptionRecord] | None:
        text = await self.catalogue.get("subscriptions", check_subscription_name(name))
        return Seen(text, msgspec.json.decode(text, type=SubscriptionRecord)) if text else None

    async def topics(self) -> dict[str, TopicRecord]:
        found = {name: text async for name, text in self.catalogue.all("topics")}
        return {name: msgspec.json.decode(found[name], type=TopicRecord) for name in sorted(found)}

    async def subscriptions(self) -> dict[str, SubscriptionRecord]:
        found = {name: text async for name, text in self.catalogue.all("subscriptions")}
        return {name: msgspec.json.decode(found[name], type=SubscriptionRecord) for name in sorted(found)}

    async def subscriptions_of(self, names: tuple[str, ...]) -> dict[str, SubscriptionRecord]:
        texts = await self.catalogue.get_many("subscriptions", names)
        pairs = zip(names, texts, strict=True)
        return {name: msgspec.json.decode(text, type=SubscriptionRecord) for name, text in pairs if text}

    # As we remember it --------------------------------------------------------------------------------

    async def with_audience(self, name: str, use: Callable[[Audience], Awaitable[T]]) -> T:
        """Use it; if it is out of date, read it again and use that."""
        for _ in range(_TRIES):
            audience = await self._audience(name)
            try:
                return await use(audience)
            except Stale:
                self._topics.pop(name, None)
            except Ahead:
                await self._establish(audience.topic)
        raise FailedPrecondition(f"topic {name} changes all the time")

    async def with_subscription(self, name: str, use: Callable[[Pulled], Awaitable[T]]) -> T:
        for _ in range(_TRIES):
            pulled = await self._pulled(name)
            try:
                return await use(pulled)
            except Stale:
                self._subscriptions.pop(name, None)
            except Ahead:
                await self._establish(pulled.engine)
        raise FailedPrecondition(f"subscription {name} changes all the time")

    def forget(self, *, topic: str = "", subscription: str = "") -> None:
        self._topics.pop(topic, None)
        self._subscriptions.pop(subscription, None)

    async def _audience(self, name: str) -> Audience:
        known = self._topics.get(name)
        if known is None:
            seen = await self.topic(name)
            if seen is None:
                raise TopicNotFound(name)
            found = await self.subscriptions_of(seen.record.subscriptions)
            known = Audience(
                self.state_of(name, seen.record),
                tuple(found),
                tuple(filters.compiled(one.options.filter) for one in found.values()),
                tuple(one.options.message_ordering for one in found.values()),
            )
            _remember(self._topics, name, known)
        known.topic.now_ms = self.now_ms()
        return known

    async def _pulled(self, name: str) -> Pulled:
        known = self._subscriptions.get(name)
        if known is None:
            seen = await self.subscription(name)
            if seen is None:
                raise SubscriptionNotFound(name)
            known = Pulled(name, seen.record, self.engine_of(name, seen.record))
            _remember(self._subscriptions, name, known)
        known.engine.now_ms = self.now_ms()
        return known

    async def _establish(self, what: Topic | Engine) -> None:
        try:
            await what.establish()
        except Stale:
            return  # somebody knows more: who asks next reads it again

    # What stands behind a record ----------------------------------------------------------------------

    def state_of(self, name: str, record: TopicRecord) -> Topic:
        return Topic(self.client, name, incarnation=record.incarnation, version=record.version, now_ms=self.now_ms())

    def engine_of(self, name: str, record: SubscriptionRecord) -> Engine:
        topic = Topic(self.client, record.topic, incarnation=0, version=0, now_ms=self.now_ms())
        return topic.subscription(name, incarnation=record.incarnation, version=1)


def written(record: TopicRecord | SubscriptionRecord) -> str:
    return _encode(record).decode()


def _remember(known: dict[str, T], name: str, one: T) -> None:
    if len(known) >= _MOST_REMEMBERED:
        known.clear()
    known[name] = one
