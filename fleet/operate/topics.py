"""Topics and subscriptions as people and programs see them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec

from fleet.broker.core import Broker
from fleet.broker.records import Subscription, Topic
from fleet.state.engine import Depths
from fleet.words import utc


async def topics_json(broker: Broker) -> list[dict[str, Any]]:
    of_topic = defaultdict(list)
    for one in await broker.get_all_subscriptions():
        if not one.detached:
            of_topic[one.topic].append(one.name)
    return [
        {"name": one.name, "createdAt": created_at(one), "subscriptions": of_topic[one.name]}
        for one in await broker.get_all_topics()
    ]


async def subscriptions_json(broker: Broker) -> list[dict[str, Any]]:
    found = await broker.get_all_subscriptions()
    depths = await broker.all_depths([one.name for one in found])
    return [subscription_json(one, depths[one.name]) for one in found if one.name in depths]


def subscription_json(subscription: Subscription, depths: Depths) -> dict[str, Any]:
    return {
        "name": subscription.name,
        "topic": subscription.topic,
        "detached": subscription.detached,
        "createdAt": created_at(subscription),
        "messages": depths.messages,
        "inFlight": depths.out,
        "inBackoff": max(0, depths.hidden - depths.out),
        "deadLettersWaiting": depths.moving,
        "oldestSeconds": depths.oldest_ms / 1000,
        "bytes": depths.bytes,
        "options": camel_case(msgspec.to_builtins(subscription.options)),
    }


def created_at(one: Topic | Subscription) -> str:
    return utc(one.created.timestamp() * 1000)


def camel_case(given: Any) -> Any:
    """Names of options as JSON has them."""
    if not isinstance(given, dict):
        return given
    return {_camel(name): camel_case(value) for name, value in given.items() if value is not None}


def _camel(name: str) -> str:
    first, *more = name.split("_")
    return first + "".join(word.title() for word in more)
