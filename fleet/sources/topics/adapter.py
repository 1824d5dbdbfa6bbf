"""What Fleet knows of topics and subscriptions."""

from __future__ import annotations

from fleet.errors import InvalidConfig
from fleet.sources.adapter import Adapter, Asked
from fleet.sources.base import Publisher, Source, Surroundings
from fleet.sources.topics.address import Address, parse
from fleet.sources.topics.publisher import NoPublisher, TopicPublisher
from fleet.sources.topics.returner import Returner
from fleet.sources.topics.source import SubscriptionSource


def _source(address: Address, asked: Asked) -> Source:
    if address.kind == "topic":
        raise InvalidConfig(
            f"{address.uri} is a topic, which is sent to: read a subscription to it, fleet://subscription/NAME"
        )
    return SubscriptionSource(name=address.name, visibility_ms=asked.visibility_ms, redis_url=asked.around.redis_url)


def _publisher(address: Address, around: Surroundings) -> Publisher:
    if address.kind == "subscription":
        return NoPublisher(address.name, redis_url=around.redis_url)
    return TopicPublisher(address.name, redis_url=around.redis_url)


def _returner(address: Address, around: Surroundings) -> Publisher:
    if address.kind == "topic":
        return _publisher(address, around)
    return Returner(address.name, redis_url=around.redis_url)


ADAPTER = Adapter(
    parse=parse,
    source=_source,
    publisher=_publisher,
    returner=_returner,
    look=None,
    kept_in="redis",
    has_visibility_timeout=True,
)
