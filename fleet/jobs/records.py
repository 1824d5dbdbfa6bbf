"""What the job store holds, as Python sees it. Fields are the columns of `schema.py`.

Needs no SQLAlchemy, like `read.py` and `shown.py`: every command imports them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from fleet.message import DEFAULT_POOL, DispatchMode

Status = Literal["PENDING", "QUEUED", "IN_PROGRESS", "COMPLETED", "ERROR", "EXPIRED", "CANCELLED"]
STATUSES: tuple[Status, ...] = get_args(Status)
FINISHED: frozenset[Status] = frozenset({"COMPLETED", "ERROR", "EXPIRED", "CANCELLED"})
MODES: tuple[DispatchMode, ...] = get_args(DispatchMode)

DEFAULT_SEQUENCE = 99
DEFAULT_TIMEOUT_S = 30
DEFAULT_MAX_RETRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job before it is in the store. Without an id it gets one there."""

    target_url: str
    payload: str = field(repr=False)
    id: str = ""
    mode: DispatchMode = "NEXT_ON_ERROR"
    pool: str = DEFAULT_POOL
    msg_group: str | None = None
    sequence: int = DEFAULT_SEQUENCE
    timeout_seconds: int = DEFAULT_TIMEOUT_S
    max_retries: int = DEFAULT_MAX_RETRIES
    scheduled_ms: int | None = None
    expires_ms: int | None = None
    source: str | None = None
    kind: str | None = None
    code: str | None = None
    subject: str | None = None
    event_id: str | None = None
    subscription: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(NewJob):
    status: Status = "PENDING"
    attempt: int = 1
    claimed_until_ms: int | None = None
    created_ms: int = 0
    queued_ms: int | None = None
    queued_epoch: int | None = None
    completed_ms: int | None = None
    last_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One delivery to a target that came to an end, as far as we know."""

    job_id: str
    attempt: int
    started_ms: int
    ended_ms: int
    status_code: int | None
    outcome: str
    error: str | None
    target_url: str
    msg_group: str | None
    pool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    type: str
    payload: str = field(repr=False)
    id: str = ""
    msg_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(NewEvent):
    created_ms: int = 0
    fanned_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    name: str
    pattern: str
    target_url: str
    mode: DispatchMode = "NEXT_ON_ERROR"
    pool: str = DEFAULT_POOL
    created_ms: int = 0
    enabled: int = 1


@dataclass(frozen=True, slots=True)
class Added:
    """What became of a batch: `known` were there already, by their id or their idempotency key."""

    ids: tuple[str, ...] = ()
    known: int = 0


# What came of taking a job ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taken:
    """The caller's until `job.claimed_until_ms`, which a settlement has to carry too."""

    job: Job


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody else has taken it until then."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class Expired:
    """Too late: it has just become EXPIRED. One that was so before is `Over`."""


@dataclass(frozen=True, slots=True)
class Over:
    """Nothing to deliver: finished, another attempt's turn, or no such job."""

    why: str


Take = Taken | Busy | Expired | Over
