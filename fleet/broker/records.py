"""What the catalogue says of a topic and of a subscription."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from fleet.broker.options import SubscriptionOptions


class TopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    created_ms: int
    incarnation: int
    version: int
    """Rises with each change of who subscribes: a publisher that knows of others is refused."""
    subscriptions: tuple[str, ...] = ()


class SubscriptionRecord(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    topic_incarnation: int
    created_ms: int
    incarnation: int
    options: SubscriptionOptions
    detached: bool = False
    """Its topic was deleted: it gives nothing any more."""


class Topic(msgspec.Struct, frozen=True):
    """A topic as its users see it."""

    name: str
    created: datetime


class Subscription(msgspec.Struct, frozen=True):
    """A subscription as its users see it. It names its topic even after that was deleted."""

    name: str
    topic: str
    created: datetime
    options: SubscriptionOptions
    detached: bool = False


def shown_topic(name: str, record: TopicRecord) -> Topic:
    return Topic(name, _moment(record.created_ms))


def shown_subscription(name: str, record: SubscriptionRecord) -> Subscription:
    return Subscription(name, record.topic, _moment(record.created_ms), record.options, record.detached)


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
