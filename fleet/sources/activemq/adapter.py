"""What Fleet knows of ActiveMQ queues."""

from __future__ import annotations

from fleet.sources.activemq.address import Address, parse_address
from fleet.sources.adapter import Adapter, Asked
from fleet.sources.base import Publisher, Source, Surroundings


def _source(address: Address, asked: Asked) -> Source:
    from fleet.sources.activemq.source import ActiveMqSource  # imports stomp.py

    return ActiveMqSource(address=address, visibility_ms=asked.visibility_ms)


def _publisher(address: Address, _around: Surroundings) -> Publisher:
    from fleet.sources.activemq.publisher import ActiveMqPublisher  # imports stomp.py

    return ActiveMqPublisher(address=address)


ADAPTER = Adapter(
    parse=parse_address,
    source=_source,
    publisher=_publisher,
    returner=None,
    look=None,
    kept_in="broker",
    has_visibility_timeout=False,
)
