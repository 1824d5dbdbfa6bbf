"""What every kind of queue can do: give messages to a coordinator (`Source`), take them from a producer (`Publisher`).

A source speaks for one queue. One coordinator at a time uses it, from one event loop; where the library blocks, the
source brings its own threads. A call that reaches the queue raises `SourceUnavailable` while the queue is away, and is
never retried inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import msgspec

from fleet.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class Received:
    """One message, as a poll returned it."""

    broker_id: str
    """The queue's own id for the message: the same at each redelivery, and never reused for another message."""
    handle: str
    """What acks this delivery of the message. Printable, without control characters."""
    body: bytes
    group: str | None = None
    receive_count: int = 1


@dataclass(frozen=True, slots=True)
class Receipt:
    """A message that we received and may still ack, nack or extend."""

    broker_id: str
    handle: str


@dataclass(frozen=True, slots=True)
class Depth:
    """How many messages are in the queue. For the dashboard, `fleet queues`, and a new owner."""

    waiting: int
    """Visible now, whether or not an older message of the group holds them back."""
    invisible: int
    """Leased or delayed."""
    oldest_s: float | None
    """The age of the oldest message, 0 when the queue is empty. None where the queue does not say."""
    delayed: int = 0
    """How many of the invisible ones nobody has received, as far as the queue can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What an adapter may need besides the URI: it comes from this process's settings."""

    redis_url: str = ""
    """Where our own queues live, with the fleet's other state."""
    sqs_endpoint: str = ""
    """Called instead of the address in an SQS queue's URI (`SQS_ENDPOINT_OVERRIDE`)."""
    clock: Clock = field(default_factory=SystemClock)


class Source(Protocol):
    """One queue to receive messages from."""

    holds_groups: bool
    """Whether a group's messages stay hidden while an older one of the group is leased or delayed."""
    shows_in_order: bool
    """Whether a group's messages first appear in the order in which they were sent."""
    visibility_ms: int
    """How long a received message stays hidden from others, unless it is extended."""
    is_looked_into: bool
    """Whether a message can be inspected without receiving it: whether the adapter has a `look`. If it cannot, the
    coordinator itself remembers until when a message that it nacked stays hidden."""
    gives_few_groups: bool
    """Whether it hands out all it has of one group before it turns to another. A pool may then hold many messages of
    such a queue, and yet too few groups to keep it busy."""
    crash_wait_ms: int
    """How long a new owner takes nothing when the last one died with messages out. Where groups are not held, those
    messages come back only after that time, and newer ones would overtake them. 0 where nothing can overtake."""

    async def open(self) -> None:
        """Connect. Nothing is received before the first poll, so asking only for the depth receives nothing."""

    async def poll(self, max_messages: int, wait_ms: int) -> list[Received]:
        """Up to `max_messages`, oldest first. Waits at most `wait_ms` for the first. Cancelling it loses nothing."""

    async def ack(self, receipts: Sequence[Receipt]) -> list[bool]:
        """Delete each. Answers come in the order of `receipts`. False: the message has been shown again since, under
        another handle.

        Idempotent: a message that is already gone counts as deleted.
        """

    async def nack(self, receipts: Sequence[tuple[Receipt, int]]) -> list[bool]:
        """Show each again after its own delay in ms (0: at once). Answers as `ack` does."""

    async def extend(self, receipts: Sequence[Receipt], visibility_ms: int) -> list[bool]:
        """Keep each invisible for `visibility_ms` from now. Answers as `ack` does."""

    async def depth(self) -> Depth: ...

    async def close(self) -> None:
        """Disconnect. Raises `SourceUnavailable`, once it has, if messages may be out that it does not know of."""


@runtime_checkable
class Checked(Protocol):
    """A source that can say whether it could be opened. To find out about any other source, open it and close it."""

    async def check(self) -> None:
        """Raise what `open` would raise. Creates nothing: the queue may be read on another machine than this."""


@runtime_checkable
class Asking(Protocol):
    """A source whose server may still hold a request of ours after the last poll."""

    async def ask_no_more(self) -> None:
        """Withdraw that request: what is shown again from now on goes to the next owner, in order."""


class Outgoing(msgspec.Struct, frozen=True):
    """One message on its way into a queue. There are millions, and a dataclass takes six times as long to make."""

    id: str
    body: bytes
    group: str | None = None
    dedup_id: str | None = None
    delay_ms: int = 0


class Never(str):
    """Why a queue would never take a message as it is. The queue was not asked."""

    __slots__ = ()


class Unsent(str):
    """Why a message was not even sent: one before it ran into trouble."""

    __slots__ = ()


class Unsure(str):
    """Why nobody can say whether a message was accepted: the answer got lost. Sent again, it may be there twice."""

    __slots__ = ()


def never(reason: str | None) -> Never | None:
    return None if reason is None else Never(reason)


class Publisher(Protocol):
    """One queue to put messages into."""

    async def open(self) -> None: ...

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        """Append in order. For each message None if it was accepted (or was there already), else why it was not.

        When the queue goes away half-way, each message gets its own answer: `Unsure` for what was under way, `Unsent`
        for what comes after that. If no message is known to be accepted, it raises instead.
        """

    async def close(self) -> None: ...
