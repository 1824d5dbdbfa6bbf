"""What Fleet knows of queues of its own."""

from __future__ import annotations

from fleet.sources.adapter import Adapter, Asked, Look
from fleet.sources.base import Publisher, Source, Surroundings
from fleet.sources.own.address import name_of
from fleet.sources.own.look import bodies, find
from fleet.sources.own.source import OwnPublisher, OwnSource


def _source(name: str, asked: Asked) -> Source:
    return OwnSource(queue=name, visibility_ms=asked.visibility_ms, redis_url=asked.around.redis_url)


def _publisher(name: str, around: Surroundings) -> Publisher:
    return OwnPublisher(queue=name, redis_url=around.redis_url)


ADAPTER = Adapter(
    parse=name_of,
    source=_source,
    publisher=_publisher,
    returner=None,
    look=Look(find=find, bodies=bodies),
    kept_in="redis",
    has_visibility_timeout=True,
)
