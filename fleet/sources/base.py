"""The seam every queue is driven through: what the coordinator asks of a source, and a producer of a queue.

A source answers for one queue. It is used by one coordinator at a time, from one event loop;
an adapter of a blocking library brings its own thread. Calls that reach the queue raise
`SourceUnavailable` when it is away; they are never retried inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import msgspec

from fleet.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class Received:
    """One message as a poll returned it."""

    broker_id: str
    """The queue's own id of the message: the same at each redelivery, never used again for another."""
    handle: str
    """What acks this delivery of it. Printable, without control characters."""
    body: bytes
    group: str | None = None
    receive_count: int = 1


@dataclass(frozen=True, slots=True)
class Held:
    """A message that we were given and that is still ours to ack, nack or extend."""

    broker_id: str
    handle: str


@dataclass(frozen=True, slots=True)
class Depth:
    """What stands in the queue, for the dashboard and for `fleet queues`."""

    waiting: int
    """Visible now, whether or not an older message of the group holds them."""
    invisible: int
    """Leased, or delayed."""
    oldest_s: float | None
    """The age of the oldest message, 0 when the queue is empty; None where the queue does not say."""
    delayed: int = 0
    """Of the invisible: given to nobody, as far as the queue tells those apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What an adapter may need beside its URI: what this process's settings say."""

    redis_url: str = ""
    """Where our own queues live: with the fleet's other state."""
    sqs_endpoint: str = ""
    """Instead of the address that an SQS queue's URI names (`SQS_ENDPOINT_OVERRIDE`)."""
    clock: Clock = field(default_factory=SystemClock)


class Source(Protocol):
    """One queue to take messages from."""

    holds_groups: bool
    """Whether it shows no message of a group while an older undeleted one is invisible, leased or delayed."""
    shows_in_order: bool
    """Whether it shows a group's messages for the first time in the order in which they were sent."""
    visibility_ms: int
    is_looked_into: bool
    """Whether it tells of a message to who only looks. Of others we remember ourselves until when they hide one."""
    gives_few_groups: bool
    """Whether it gives as much as it has of one group before it gives another. What a pool has of such a queue may be
    a lot, and of too few groups to keep it busy."""
    crash_wait_ms: int
    """How long a new owner takes nothing after one that died while the queue had messages out: where groups are not
    held, what that one was given comes again only then, and what is newer would overtake. 0 where it cannot."""

    async def open(self) -> None:
        """Connect. Nothing is taken before the first poll: whoever only asks for the depth takes nothing."""

    async def poll(self, max_messages: int, wait_ms: int) -> list[Received]:
        """Up to `max_messages`, oldest first; waits at most `wait_ms` for the first. Cancelling it loses nothing."""

    async def ack(self, held: Sequence[Held]) -> list[bool]:
        """Delete each. False, in the same place, for one that was shown again since, under another handle.

        One that is gone already counts as deleted: said twice is said once.
        """

    async def nack(self, held: Sequence[tuple[Held, int]]) -> list[bool]:
        """Show each again after its own delay in ms (0: at once)."""

    async def extend(self, held: Sequence[Held], visibility_ms: int) -> list[bool]:
        """Keep each invisible for `visibility_ms` from now."""

    async def depth(self) -> Depth: ...

    async def close(self) -> None: ...


@runtime_checkable
class Checked(Protocol):
    """A source that says by itself whether it could be opened. For others one opens and closes them, to see."""

    async def check(self) -> None:
        """Raise what `open` would. Nothing is made: this may be another machine than the one that reads it."""


@runtime_checkable
class Asking(Protocol):
    """A source for which its server still has a request when nobody polls any more."""

    async def ask_no_more(self) -> None:
        """Take that back: what is shown again from now on is for the next owner, in the order in which it is."""


class Outgoing(msgspec.Struct, frozen=True):
    """One message on its way into a queue. No dataclass, which takes six times as long to make: there are millions."""

    id: str
    body: bytes
    group: str | None = None
    dedup_id: str | None = None
    delay_ms: int = 0


class Never(str):
    """Why a queue takes a message at no time, as it is: nothing was asked of the queue to know that."""

    __slots__ = ()


class NotSent(str):
    """Why a message was not even sent: one before it met trouble."""

    __slots__ = ()


class Unsure(str):
    """Why nobody can say whether a message was accepted: its answer got lost. Sent again it may be there twice."""

    __slots__ = ()


def never(reason: str | None) -> Never | None:
    return None if reason is None else Never(reason)


class Publisher(Protocol):
    """One queue to put messages into."""

    async def open(self) -> None: ...

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        """Append in order. For each None where it was accepted (or was there already), else why it was not.

        A queue that goes away half-way is told entry by entry: `Unsure` for what was under way, `NotSent` for what
        stands behind that. Where none is known to be accepted it raises instead.
        """

    async def close(self) -> None: ...
