"""What Fleet knows of embedded queues."""

from __future__ import annotations

from fleet.sources.adapter import Adapter, Asked, Look
from fleet.sources.base import Publisher, Source, Surroundings
from fleet.sources.sqlite.address import QueueAddress, parse_address
from fleet.sources.sqlite.look import bodies, find
from fleet.sources.sqlite.publisher import SqlitePublisher
from fleet.sources.sqlite.source import SqliteSource


def _source(address: QueueAddress, asked: Asked) -> Source:
    return SqliteSource(
        path=address.path, queue=address.queue, visibility_ms=asked.visibility_ms, clock=asked.around.clock
    )


def _publisher(address: QueueAddress, around: Surroundings) -> Publisher:
    return SqlitePublisher(path=address.path, queue=address.queue, clock=around.clock)


ADAPTER = Adapter(
    parse=parse_address,
    source=_source,
    publisher=_publisher,
    returner=None,
    look=Look(find=find, bodies=bodies),
    kept_in="file",
    has_visibility_timeout=True,
)
