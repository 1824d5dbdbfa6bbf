"""From a queue's URI to the adapter that drives it. A new kind of queue is a line in the table here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fleet.errors import InvalidConfig
from fleet.sources.activemq import address as activemq_address
from fleet.sources.base import Publisher, Source, Surroundings
from fleet.sources.nats import address as nats_address
from fleet.sources.own import source as own
from fleet.sources.sqlite import file as sqlite_file
from fleet.sources.sqlite.publisher import SqlitePublisher
from fleet.sources.sqlite.source import SqliteSource
from fleet.sources.sqs import address as sqs_address

_around = Surroundings()


def surround(around: Surroundings) -> None:
    """Once a process, as its settings are read: where it runs is the same for every queue that it opens."""
    global _around
    _around = around


class OpenSource(Protocol):
    """What opens a queue for us: `open_source`, or what a test has in its place."""

    def __call__(self, queue_name: str, uri: str, visibility_ms: int, *, connections: int = 1) -> Source: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a source is opened with."""

    name: str
    uri: str
    visibility_ms: int
    connections: int
    around: Surroundings


def open_source(
    queue_name: str, uri: str, visibility_ms: int, *, connections: int = 1, around: Surroundings | None = None
) -> Source:
    """The source for a queue, not connected yet. `queue_name` is what the rest of Fleet calls it."""
    if visibility_ms < 1:
        raise InvalidConfig(f"visibility timeout of queue {queue_name} must be at least 1 ms")
    asked = Asked(
        name=queue_name, uri=uri, visibility_ms=visibility_ms, connections=connections, around=around or _around
    )
    return _adapter(uri).source(asked)


def open_publisher(uri: str, *, around: Surroundings | None = None) -> Publisher:
    """The publisher for a queue, not connected yet."""
    return _adapter(uri).publisher(uri, around or _around)


def _sqlite_source(asked: Asked) -> Source:
    address = sqlite_file.parse_address(asked.uri)
    return SqliteSource(
        path=address.path,
        queue=address.queue,
        visibility_ms=asked.visibility_ms,
        clock=asked.around.clock,
    )


def _sqlite_publisher(uri: str, around: Surroundings) -> Publisher:
    address = sqlite_file.parse_address(uri)
    return SqlitePublisher(path=address.path, queue=address.queue, clock=around.clock)


def _own_source(asked: Asked) -> Source:
    return own.OwnSource(
        queue=own.name_of(asked.uri),
        visibility_ms=asked.visibility_ms,
        redis_url=asked.around.redis_url,
    )


def _own_publisher(uri: str, around: Surroundings) -> Publisher:
    return own.OwnPublisher(queue=own.name_of(uri), redis_url=around.redis_url)


# The adapters of remote queues are imported when one is first opened: their libraries take up to half a second, of
# each command and each process that has no such queue.


def _sqs_source(asked: Asked) -> Source:
    from fleet.sources.sqs.source import SqsSource

    return SqsSource(
        name=asked.name,
        address=sqs_address.parse_address(asked.uri),
        visibility_ms=asked.visibility_ms,
        connections=asked.connections,
        clock=asked.around.clock,
        endpoint=asked.around.sqs_endpoint,
    )


def _sqs_publisher(uri: str, around: Surroundings) -> Publisher:
    from fleet.sources.sqs.publisher import SqsPublisher

    return SqsPublisher(address=sqs_address.parse_address(uri), endpoint=around.sqs_endpoint)


def _nats_source(asked: Asked) -> Source:
    from fleet.sources.nats.source import NatsSource

    return NatsSource(
        address=nats_address.parse_address(asked.uri),
        visibility_ms=asked.visibility_ms,
        clock=asked.around.clock,
    )


def _nats_publisher(uri: str, _around: Surroundings) -> Publisher:
    from fleet.sources.nats.publisher import NatsPublisher

    return NatsPublisher(address=nats_address.parse_address(uri))


def _activemq_source(asked: Asked) -> Source:
    from fleet.sources.activemq.source import ActiveMqSource

    return ActiveMqSource(address=activemq_address.parse_address(asked.uri), visibility_ms=asked.visibility_ms)


def _activemq_publisher(uri: str, _around: Surroundings) -> Publisher:
    from fleet.sources.activemq.publisher import ActiveMqPublisher

    return ActiveMqPublisher(address=activemq_address.parse_address(uri))


@dataclass(frozen=True, slots=True)
class _Adapter:
    source: Callable[[Asked], Source]
    publisher: Callable[[str, Surroundings], Publisher]


_SQS = _Adapter(_sqs_source, _sqs_publisher)
_ADAPTERS = {
    "fleet": _Adapter(_own_source, _own_publisher),
    "http": _SQS,
    "https": _SQS,
    "nats": _Adapter(_nats_source, _nats_publisher),
    "sqlite": _Adapter(_sqlite_source, _sqlite_publisher),
    "sqs": _SQS,
    "stomp": _Adapter(_activemq_source, _activemq_publisher),
}


def _adapter(uri: str) -> _Adapter:
    scheme, colon, _ = uri.partition(":")
    adapter = _ADAPTERS.get(scheme.lower()) if colon else None
    if adapter is None:
        # The rest of the URI may hold a password, and is not repeated.
        asked = f"'{scheme[:32]}'" if colon else "a URI without a scheme"
        raise InvalidConfig(f"no queue adapter for {asked}; known schemes: {', '.join(sorted(_ADAPTERS))}")
    return adapter
