"""From a queue's URI to the adapter that drives it. A new kind of queue is a line in each table here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fleet.clock import Clock, SystemClock
from fleet.errors import InvalidConfig
from fleet.sources.base import Publisher, Source
from fleet.sources.sqlite import SqliteSource
from fleet.sources.sqlite_file import parse_address
from fleet.sources.sqlite_publisher import SqlitePublisher

T = TypeVar("T")


def open_source(queue_name: str, uri: str, visibility_ms: int, *, clock: Clock | None = None) -> Source:
    """The source for a queue, not connected yet. `queue_name` is what the rest of Fleet calls it."""
    if visibility_ms < 1:
        raise InvalidConfig(f"visibility timeout of queue {queue_name} must be at least 1 ms")
    return _adapter(_SOURCES, uri)(queue_name, uri, visibility_ms, clock or SystemClock())


def open_publisher(uri: str, *, clock: Clock | None = None) -> Publisher:
    """The publisher for a queue, not connected yet."""
    return _adapter(_PUBLISHERS, uri)(uri, clock or SystemClock())


def _sqlite_source(queue_name: str, uri: str, visibility_ms: int, clock: Clock) -> Source:
    address = parse_address(uri)
    return SqliteSource(
        name=queue_name, path=address.path, queue=address.queue, visibility_ms=visibility_ms, clock=clock
    )


def _sqlite_publisher(uri: str, clock: Clock) -> Publisher:
    address = parse_address(uri)
    return SqlitePublisher(path=address.path, queue=address.queue, clock=clock)


_SOURCES: dict[str, Callable[[str, str, int, Clock], Source]] = {"sqlite": _sqlite_source}
_PUBLISHERS: dict[str, Callable[[str, Clock], Publisher]] = {"sqlite": _sqlite_publisher}


def _adapter(adapters: dict[str, T], uri: str) -> T:
    scheme, colon, _ = uri.partition(":")
    adapter = adapters.get(scheme.lower()) if colon else None
    if adapter is None:
        # The rest of the URI may hold a password, and is not repeated.
        asked = f"'{scheme[:32]}'" if colon else "a URI without a scheme"
        raise InvalidConfig(f"no queue adapter for {asked}; known schemes: {', '.join(sorted(adapters))}")
    return adapter
