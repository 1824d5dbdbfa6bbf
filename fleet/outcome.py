"""What came of a delivery: a closed vocabulary, settled by one `match`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

DEFAULT_RETRY_S = 30
CASCADE_RETRY_S = 10
QUEUE_FULL_RETRY_S = 30
MIN_RETRY_S = 1
MAX_RETRY_S = 43_200


@dataclass(frozen=True, slots=True)
class Delivered:
    """The endpoint took it: acked."""

    status: int = 200


@dataclass(frozen=True, slots=True)
class Rejected:
    """The endpoint can never take it (4xx, 501): acked, with a warning, so that it is not retried for ever."""

    status: int
    reason: str
    critical: bool = False


@dataclass(frozen=True, slots=True)
class Uncallable:
    """No request can ever be made of it (its target is not a URL): put aside as a dead letter, then acked."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The endpoint did not take it now (5xx, 429, ack:false, timeout): nacked, shown again after `retry_s`."""

    reason: str
    retry_s: int | None = None
    status: int = 0
    worth_another_attempt: bool = False
    """By the same worker under the same lease, a second or two later, before it is nacked."""
    unexpected: bool = False
    """Not a failure that we know: people should look."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """There was no endpoint to ask (refused, reset, no address): at last nacked with the default delay."""

    reason: str
    worth_another_attempt: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class NotSent:
    """No request was made (open breaker, egress rules, a secret that cannot be read): nacked with the default delay."""

    reason: str
    warn: bool = False
    """It lasts until somebody changes something."""


@dataclass(frozen=True, slots=True)
class Refenced:
    """The endpoint knows a newer epoch for this group: nothing is settled, and the lane rests."""

    status: int = 412


Outcome = Delivered | Rejected | Uncallable | Failed | Unreachable | NotSent | Refenced
OutcomeName = Literal["SUCCESS", "ERROR_CONFIG", "ERROR_PROCESS", "ERROR_CONNECTION", "NOT_SENT", "FENCED"]


def retry_delay_s(seconds: int | None) -> int:
    """A delay as the seeds clamp it: 30 s where none (or 0) was asked for, else 1 s to 12 h."""
    if not seconds:
        return DEFAULT_RETRY_S
    return max(MIN_RETRY_S, min(MAX_RETRY_S, seconds))
