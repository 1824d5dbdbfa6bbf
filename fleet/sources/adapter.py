"""What one kind of queue declares about itself: everything that code outside its folder needs to know.

Each folder here has an `adapter.py` with one `ADAPTER`; `fleet/sources/open.py` finds it by the scheme of a URI. An
adapter is sometimes loaded just to look up a fact. So if a library is heavy (boto3 takes half a second), the modules
that need it are imported inside the functions that open a queue, and nowhere else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from fleet.message import Message
from fleet.sources.base import Publisher, Source, Surroundings
from fleet.state.connect import Client

Address = TypeVar("Address")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a source is opened with, besides its address."""

    name: str
    """What the rest of Fleet calls the queue, for logs and errors."""
    visibility_ms: int
    connections: int
    around: Surroundings


@dataclass(frozen=True, slots=True)
class AtSource:
    """One message as it stands in its queue."""

    broker_id: str
    message: Message | None
    """None where its body is not a message."""
    group: str | None
    visible_at_ms: int
    leased: bool
    """Somebody took it and has not acked it. True only until it is visible again."""
    ahead: int
    """Older messages of its group: it is not shown before they are gone."""
    head_id: str
    """The id of the oldest message of its group, or the queue's id for it if the body is not a message."""
    head_visible_at_ms: int
    head_leased: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Generic[Address]):
    """How to inspect messages without receiving them. `client` is the caller's connection to the fleet's Redis."""

    find: Callable[[Client, Address, str], Awaitable[AtSource | None]]
    """A message by its own id or by the queue's, else the oldest message of a group with that name."""
    bodies: Callable[[Client, Address, int, int], AsyncIterator[tuple[str, bytes]]]
    """The queue's id and the body of each message. It ends after that many messages, or once their bodies add up to
    that many bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter(Generic[Address]):
    """One kind of queue. No field has a default: a kind that leaves one out is not finished."""

    parse: Callable[[str], Address]
    """Read a URI. If it is wrong: InvalidConfig, in words that never repeat a password."""
    source: Callable[[Address, Asked], Source]
    """Not connected yet."""
    publisher: Callable[[Address, Surroundings], Publisher]
    """Not connected yet."""
    returner: Callable[[Address, Surroundings], Publisher] | None
    """What takes a dead letter of the queue back. None: its publisher does."""
    look: Look[Address] | None
    """None if receiving a message is the only way to see it."""
    kept_in: Literal["file", "redis", "broker"]
    """A file of this machine, the fleet's Redis, or a broker of its own."""
    has_visibility_timeout: bool
    """False if a message belongs to the connection that received it, until that ends."""

    @property
    def is_local(self) -> bool:
        """Whether asking for the depth costs next to nothing. A broker may be far away, or charge for each call."""
        return self.kept_in != "broker"
