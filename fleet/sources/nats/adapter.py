"""What Fleet knows of NATS JetStream queues."""

from __future__ import annotations

from fleet.sources.adapter import Adapter, Asked
from fleet.sources.base import Publisher, Source, Surroundings
from fleet.sources.nats.address import NatsAddress, parse_address


def _source(address: NatsAddress, asked: Asked) -> Source:
    from fleet.sources.nats.source import NatsSource  # imports nats-py

    return NatsSource(address=address, visibility_ms=asked.visibility_ms, clock=asked.around.clock)


def _publisher(address: NatsAddress, _around: Surroundings) -> Publisher:
    from fleet.sources.nats.publisher import NatsPublisher  # imports nats-py

    return NatsPublisher(address=address)


ADAPTER = Adapter(
    parse=parse_address,
    source=_source,
    publisher=_publisher,
    returner=None,
    look=None,
    kept_in="broker",
    has_visibility_timeout=True,
)
