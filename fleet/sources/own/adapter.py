"""What Fleet knows of queues of its own, and of those of the SQS door, which stand in the same Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fleet.sources.adapter import Adapter, Asked, AtSource, Look
from fleet.sources.base import Publisher, Source, Surroundings
from fleet.sources.own import look
from fleet.sources.own.address import name_of
from fleet.sources.own.door import look as door_look
from fleet.sources.own.door.address import DoorAddress, is_of_door, parse_address
from fleet.sources.own.door.source import DoorPublisher, DoorSource
from fleet.sources.own.source import OwnPublisher, OwnSource
from fleet.state.connect import Client

Address = str | DoorAddress
"""The name of a queue of our own, or a queue of the door."""


def _parse(uri: str) -> Address:
    return parse_address(uri) if is_of_door(uri) else name_of(uri)


def _source(address: Address, asked: Asked) -> Source:
    redis_url = asked.around.redis_url
    if isinstance(address, DoorAddress):
        return DoorSource(address=address, visibility_ms=asked.visibility_ms, redis_url=redis_url)
    return OwnSource(queue=address, visibility_ms=asked.visibility_ms, redis_url=redis_url)


def _publisher(address: Address, around: Surroundings) -> Publisher:
    if isinstance(address, DoorAddress):
        return DoorPublisher(address=address, redis_url=around.redis_url)
    return OwnPublisher(queue=address, redis_url=around.redis_url)


async def _find(client: Client, address: Address, subject: str) -> AtSource | None:
    if isinstance(address, DoorAddress):
        return await door_look.find(client, address, subject)
    return await look.find(client, address, subject)


def _bodies(client: Client, address: Address, most: int, most_bytes: int) -> AsyncIterator[tuple[str, bytes]]:
    if isinstance(address, DoorAddress):
        return door_look.bodies(client, address, most, most_bytes)
    return look.bodies(client, address, most, most_bytes)


ADAPTER = Adapter(
    parse=_parse,
    source=_source,
    publisher=_publisher,
    returner=None,
    look=Look(find=_find, bodies=_bodies),
    kept_in="redis",
    has_visibility_timeout=True,
)
