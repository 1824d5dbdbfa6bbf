"""What the driver writes into the job store: which epoch claimed which jobs, and what became of it.

An epoch is `frozen` (claims written, nothing promised), `published` (every claim is in the queue), `marked` (its jobs
are QUEUED). Only the newest may be unmarked: the next one is planned when this one is marked. Each change says with
which fence it is made; once a newer driver has begun, an older one is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from sqlalchemy import Connection, Engine, and_, delete, exists, func, insert, or_, select, text, update

from fleet.errors import Fenced
from fleet.jobs.database import reading, writing
from fleet.jobs.schema import claims, dispatch_jobs, epochs
from spark.sources.copy import insert_rows

_KEEP_MS = 24 * 3600 * 1000
ASLEEP_MS = 30_000
"""A transaction in which nothing is said for so long is the database's to end."""
_CLAIM_COLUMNS = {
    "shard": "shard", "seq": "seq", "job_id": "job_id", "attempt": "attempt", "msg_group": "message_group"
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Epoch:
    number: int
    state: str
    jobs: int
    claims: Any = field(default=None, repr=False, compare=False)
    """What the ledger holds of it, as a table of `TO_PUBLISH`, with the driver that has just frozen it."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A job that can never be published as it is."""

    job_id: str
    attempt: int
    reason: str


class Ledger:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, *, fence: int, now_ms: int) -> None:
        """Shut out every driver before this one, and forget epochs of the past."""
        with writing(self._engine) as connection:
            number = _newest(connection, fence) + 1
            _insert_epoch(connection, number, fence, state="marked", jobs=0, now_ms=now_ms)
            connection.execute(update(epochs).where(epochs.c.epoch == number).values(marked_ms=now_ms))
            over = and_(epochs.c.state == "marked", epochs.c.marked_ms < now_ms - _KEEP_MS)
            connection.execute(delete(claims).where(claims.c.epoch.in_(select(epochs.c.epoch).where(over))))
            connection.execute(delete(epochs).where(over))

    def unfinished(self) -> Epoch | None:
        """The one that a driver left behind."""
        question = select(epochs.c.epoch, epochs.c.state, epochs.c.jobs).where(epochs.c.state != "marked")
        with reading(self._engine) as connection:
            row = connection.execute(question.order_by(epochs.c.epoch)).first()
        return None if row is None else Epoch(*row)

    def shards_of(self, epoch: int) -> list[int]:
        with reading(self._engine) as connection:
            return sorted(
                connection.execute(select(claims.c.shard).where(claims.c.epoch == epoch).distinct()).scalars()
            )

    def freeze(self, planned: pa.Table, *, fence: int, now_ms: int) -> Epoch:
        """All of the plan or nothing of it. `planned`: rows of `TO_PUBLISH`."""
        with writing(self._engine) as connection:
            number = _newest(connection, fence) + 1
            _insert_epoch(connection, number, fence, state="frozen", jobs=planned.num_rows, now_ms=now_ms)
            columns = {name: planned.column(from_) for name, from_ in _CLAIM_COLUMNS.items()}
            rows = pa.table({"epoch": pa.repeat(number, planned.num_rows), **columns})
            insert_rows(connection, claims, rows)
        return Epoch(number, "frozen", planned.num_rows, planned)

    def published(self, epoch: int, *, refused: Sequence[Refused], fence: int, now_ms: int) -> None:
        """What was refused ends here, in ERROR: whoever marks the epoch after a crash does not know of it any more."""
        job = dispatch_jobs.c
        with writing(self._engine) as connection:
            _newest(connection, fence)
            for one in refused:
                guard = and_(job.id == one.job_id, job.attempt == one.attempt, job.status == "PENDING")
                ended = {"status": "ERROR", "last_error": one.reason, "completed_ms": now_ms}
                connection.execute(update(dispatch_jobs).where(guard).values(ended))
            # Not from `marked`: a driver that fell asleep right here must not open it again.
            this = and_(epochs.c.epoch == epoch, epochs.c.state == "frozen")
            connection.execute(update(epochs).where(this).values(state="published"))

    def mark(self, epoch: int, *, fence: int, now_ms: int) -> int:
        """QUEUED, where still PENDING with the attempt that was claimed: how many."""
        job = dispatch_jobs.c
        with writing(self._engine) as connection:
            _newest(connection, fence)
            claimed = and_(claims.c.epoch == epoch, claims.c.job_id == job.id, claims.c.attempt == job.attempt)
            done = connection.execute(
                update(dispatch_jobs)
                .where(claimed, job.status == "PENDING")
                .values(status="QUEUED", queued_ms=now_ms, queued_epoch=epoch)
            )
            connection.execute(update(epochs).where(epochs.c.epoch == epoch).values(state="marked", marked_ms=now_ms))
        return done.rowcount

    def expire(self, *, now_ms: int) -> int:
        job = dispatch_jobs.c
        late = and_(job.status == "PENDING", job.expires_ms.is_not(None), job.expires_ms <= now_ms)
        with reading(self._engine) as connection:
            if not connection.execute(select(exists().where(late))).scalar():
                return 0
        with writing(self._engine) as connection:
            ended = {"status": "EXPIRED", "completed_ms": now_ms}
            return connection.execute(update(dispatch_jobs).where(late).values(ended)).rowcount

    def due(self, *, now_ms: int) -> tuple[int, int]:
        """How many jobs are due, held or not, and since when the longest waiting of them is there."""
        job = dispatch_jobs.c
        since = func.min(func.coalesce(job.scheduled_ms, job.created_ms))
        question = select(func.count(), since).where(
            job.status == "PENDING", or_(job.scheduled_ms.is_(None), job.scheduled_ms <= now_ms)
        )
        with reading(self._engine) as connection:
            count, oldest_ms = connection.execute(question).one()
        return count, 0 if oldest_ms is None else max(0, now_ms - oldest_ms)

    def reset(self, jobs: Iterable[tuple[str, int, str]], *, fence: int) -> int:
        """(id, attempt, status) → PENDING as the next attempt, where it is still so. All at once: groups go whole."""
        job, changed = dispatch_jobs.c, 0
        with writing(self._engine) as connection:
            _newest(connection, fence)
            for job_id, attempt, status in jobs:
                guard = and_(job.id == job_id, job.attempt == attempt, job.status == status)
                again = {"status": "PENDING", "attempt": attempt + 1, "queued_ms": None, "queued_epoch": None}
                done = connection.execute(update(dispatch_jobs).where(guard).values(**again, claimed_until_ms=None))
                changed += done.rowcount
        return changed


def _newest(connection: Connection, fence: int) -> int:
    if connection.dialect.name == "postgresql":
        # Of a driver that is stopped in here: its successor would wait for its rows for ever.
        connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = {ASLEEP_MS}"))
    number, newest_fence = connection.execute(select(func.max(epochs.c.epoch), func.max(epochs.c.fence))).one()
    if newest_fence is not None and newest_fence > fence:
        raise Fenced("another driver has taken over the feed")
    return int(number or 0)


def _insert_epoch(connection: Connection, number: int, fence: int, *, state: str, jobs: int, now_ms: int) -> None:
    # The number is the lock: of two drivers that see the same newest epoch one gets it, the other an error.
    row = {"epoch": number, "fence": fence, "state": state, "jobs": jobs, "created_ms": now_ms}
    connection.execute(insert(epochs), row)
