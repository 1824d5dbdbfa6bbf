"""From a queue's URI to the adapter that drives it. `fleet/kinds.py` lists the kinds."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Protocol

from fleet.errors import InvalidConfig
from fleet.kinds import KIND_OF, kind_of
from fleet.sources.adapter import Adapter, Asked
from fleet.sources.base import Publisher, Source, Surroundings

_around = Surroundings()


def surround(around: Surroundings) -> None:
    """Called once per process, when its settings are read: the surroundings are the same for all its queues."""
    global _around
    _around = around


class OpenSource(Protocol):
    """What opens a queue for us: `open_source`, or what a test puts in its place."""

    def __call__(self, queue_name: str, uri: str, visibility_ms: int, *, connections: int = 1) -> Source: ...


def adapter_for(uri: str) -> Adapter[Any] | None:
    """The adapter that a URI asks for; None for an unknown scheme."""
    kind = kind_of(uri)
    return None if kind is None else _load(kind)


def adapter_of(uri: str) -> Adapter[Any]:
    """Likewise. InvalidConfig if there is none."""
    adapter = adapter_for(uri)
    if adapter is None:
        scheme, colon, _ = uri.partition(":")
        # The rest of the URI may hold a password, and is not repeated.
        asked = f"'{scheme[:32]}'" if colon else "a URI without a scheme"
        raise InvalidConfig(f"no queue adapter for {asked}; known schemes: {', '.join(sorted(KIND_OF))}")
    return adapter


def open_source(
    queue_name: str, uri: str, visibility_ms: int, *, connections: int = 1, around: Surroundings | None = None
) -> Source:
    """The source for a queue, not connected yet. `queue_name` is what the rest of Fleet calls it."""
    if visibility_ms < 1:
        raise InvalidConfig(f"visibility timeout of queue {queue_name} must be at least 1 ms")
    adapter = adapter_of(uri)
    asked = Asked(name=queue_name, visibility_ms=visibility_ms, connections=connections, around=around or _around)
    return adapter.source(adapter.parse(uri), asked)


def open_publisher(uri: str, *, around: Surroundings | None = None) -> Publisher:
    """The publisher for a queue, not connected yet."""
    adapter = adapter_of(uri)
    return adapter.publisher(adapter.parse(uri), around or _around)


def open_returner(uri: str, *, around: Surroundings | None = None) -> Publisher:
    """What takes back messages that came from the queue, not connected yet."""
    adapter = adapter_of(uri)
    return (adapter.returner or adapter.publisher)(adapter.parse(uri), around or _around)


@cache
def _load(kind: str) -> Adapter[Any]:
    """Called when a queue of this kind is first met: a process that has none pays nothing for it."""
    adapter: Adapter[Any] = import_module(f"fleet.sources.{kind}.adapter").ADAPTER
    return adapter
