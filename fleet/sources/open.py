"""From a queue's URI to the adapter that drives it. A new kind of queue is a line in each table here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fleet.errors import InvalidConfig
from fleet.sources import activemq_address
from fleet.sources.base import Publisher, Source, Surroundings
from fleet.sources.sqlite import SqliteSource
from fleet.sources.sqlite_file import parse_address
from fleet.sources.sqlite_publisher import SqlitePublisher

T = TypeVar("T")

_around = Surroundings()


def surround(around: Surroundings) -> None:
    """Once a process, as its settings are read: where it runs is the same for every queue that it opens."""
    global _around
    _around = around


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


def _activemq_source(queue_name: str, uri: str, visibility_ms: int, _connections: int, _around: Surroundings) -> Source:
    address = activemq_address.parse_address(uri)
    # Not before somebody needs it: stomp.py looks up this machine's name as it is imported, which may take long.
    from fleet.sources.activemq import ActiveMqSource

    return ActiveMqSource(name=queue_name, address=address, visibility_ms=visibility_ms)


def _activemq_publisher(uri: str, _around: Surroundings) -> Publisher:
    address = activemq_address.parse_address(uri)
    from fleet.sources.activemq_publisher import ActiveMqPublisher

    return ActiveMqPublisher(address=address)


_SOURCES: dict[str, Callable[[str, str, int, int, Surroundings], Source]] = {
    "sqlite": _sqlite_source,
    "stomp": _activemq_source,
}
_PUBLISHERS: dict[str, Callable[[str, Surroundings], Publisher]] = {
    "sqlite": _sqlite_publisher,
    "stomp": _activemq_publisher,
}


def _adapter(adapters: dict[str, T], uri: str) -> T:
    scheme, colon, _ = uri.partition(":")
    adapter = adapters.get(scheme.lower()) if colon else None
    if adapter is None:
        # The rest of the URI may hold a password, and is not repeated.
        asked = f"'{scheme[:32]}'" if colon else "a URI without a scheme"
        raise InvalidConfig(f"no queue adapter for {asked}; known schemes: {', '.join(sorted(adapters))}")
    return adapter
