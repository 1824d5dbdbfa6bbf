"""What Fleet knows of SQS queues, FIFO and standard."""

from __future__ import annotations

from fleet.sources.adapter import Adapter, Asked
from fleet.sources.base import Publisher, Source, Surroundings
from fleet.sources.sqs.address import SqsAddress, parse_address


def _source(address: SqsAddress, asked: Asked) -> Source:
    from fleet.sources.sqs.source import SqsSource  # imports boto3

    return SqsSource(
        name=asked.name,
        address=address,
        visibility_ms=asked.visibility_ms,
        connections=asked.connections,
        clock=asked.around.clock,
        endpoint=asked.around.sqs_endpoint,
    )


def _publisher(address: SqsAddress, around: Surroundings) -> Publisher:
    from fleet.sources.sqs.publisher import SqsPublisher  # imports boto3

    return SqsPublisher(address=address, endpoint=around.sqs_endpoint)


ADAPTER = Adapter(
    parse=parse_address,
    source=_source,
    publisher=_publisher,
    returner=None,
    look=None,
    kept_in="broker",
    has_visibility_timeout=True,
)
