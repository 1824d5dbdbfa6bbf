"""From a queue's URI to the adapter that drives it. A new kind of queue is a line in each table here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from fleet.errors import InvalidConfig
from fleet.sources.base import Publisher, Source, Surroundings
from fleet.sources.own import OwnPublisher, OwnSource, name_of
from fleet.sources.sqlite import SqliteSource
from fleet.sources.sqlite_file import parse_address
from fleet.sources.sqlite_publisher import SqlitePublisher
from fleet.sources.sqs_address import parse_address as parse_sqs_address

T = TypeVar("T")

_around = Surroundings()


def surround(around: Surroundings) -> None:
    """Once a process, as its settings are read: where it runs is the same for every queue that it opens."""
    global _around
    _around = around


class OpenSource(Protocol):
    """What opens a queue for us: `open_source`, or what a test has in its place."""

    def __call__(self, queue_name: str, uri: str, visibility_ms: int, *, connections: int = 1) -> Source: ...


def open_source(
    queue_name: str, uri: str, visibility_ms: int, *, connections: int = 1, around: Surroundings | None = None
) -> Source:
    """The source for a queue, not connected yet. `queue_name` is what the rest of Fleet calls it."""
    if visibility_ms < 1:
        raise InvalidConfig(f"visibility timeout of queue {queue_name} must be at least 1 ms")
    return _adapter(_SOURCES, uri)(queue_name, uri, visibility_ms, connections, around or _around)


def open_publisher(uri: str, *, around: Surroundings | None = None) -> Publisher:
    """The publisher for a queue, not connected yet."""
    return _adapter(_PUBLISHERS, uri)(uri, around or _around)


def _sqlite_source(queue_name: str, uri: str, visibility_ms: int, _connections: int, around: Surroundings) -> Source:
    address = parse_address(uri)
    return SqliteSource(
        name=queue_name, path=address.path, queue=address.queue, visibility_ms=visibility_ms, clock=around.clock
    )


def _sqlite_publisher(uri: str, around: Surroundings) -> Publisher:
    address = parse_address(uri)
    return SqlitePublisher(path=address.path, queue=address.queue, clock=around.clock)


def _own_source(queue_name: str, uri: str, visibility_ms: int, _connections: int, around: Surroundings) -> Source:
    return OwnSource(name=queue_name, queue=name_of(uri), visibility_ms=visibility_ms, redis_url=around.redis_url)


def _own_publisher(uri: str, around: Surroundings) -> Publisher:
    return OwnPublisher(queue=name_of(uri), redis_url=around.redis_url)


def _sqs_source(queue_name: str, uri: str, visibility_ms: int, connections: int, around: Surroundings) -> Source:
    # boto3 takes longer to import than the rest of us together, and `fleet --help` needs none of it.
    from fleet.sources.sqs import SqsSource

    return SqsSource(
        name=queue_name,
        address=parse_sqs_address(uri),
        visibility_ms=visibility_ms,
        connections=connections,
        clock=around.clock,
        endpoint=around.sqs_endpoint,
    )


def _sqs_publisher(uri: str, around: Surroundings) -> Publisher:
    from fleet.sources.sqs_publisher import SqsPublisher  # as above

    return SqsPublisher(address=parse_sqs_address(uri), endpoint=around.sqs_endpoint)


_SOURCES: dict[str, Callable[[str, str, int, int, Surroundings], Source]] = {
    "fleet": _own_source,
    "http": _sqs_source,
    "https": _sqs_source,
    "sqlite": _sqlite_source,
    "sqs": _sqs_source,
}
_PUBLISHERS: dict[str, Callable[[str, Surroundings], Publisher]] = {
    "fleet": _own_publisher,
    "http": _sqs_publisher,
    "https": _sqs_publisher,
    "sqlite": _sqlite_publisher,
    "sqs": _sqs_publisher,
}


def _adapter(adapters: dict[str, T], uri: str) -> T:
    scheme, colon, _ = uri.partition(":")
    adapter = adapters.get(scheme.lower()) if colon else None
    if adapter is None:
        # The rest of the URI may hold a password, and is not repeated.
        asked = f"'{scheme[:32]}'" if colon else "a URI without a scheme"
        raise InvalidConfig(f"no queue adapter for {asked}; known schemes: {', '.join(sorted(adapters))}")
    return adapter
