"""What the driver writes into the job store: which epoch claimed which jobs, and what became of it.

An epoch is `frozen` (claims written, nothing promised), `published` (every claim is in the queue), `marked` (its jobs
are QUEUED). Only the newest may be unmarked: the next one is planned when this one is marked. Each change carries its
driver's fence; once a newer driver has begun, an older one is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    and_,
    case,
    func,
    insert,
    or_,
    select,
    text,
    true,
    update,
)

from fleet.errors import Fenced
from fleet.jobs.database import reading, writing
from fleet.jobs.due import due_since
from fleet.jobs.prune import forget_epochs
from fleet.jobs.schema import claims, dispatch_jobs, epochs
from spark.begun import begun
from spark.room import PoolDue
from spark.sources.copy import insert_rows

_KEEP_MS = 24 * 3600 * 1000
LOCKED_MS = 30_000
"""As long as a sleeping driver keeps what it has written (`ASLEEP_MS`), unless its machine stands still with it."""
_MANY = 10_000
"""From this many on, two transactions mark at once: each uses one core of PostgreSQL's machine."""
_CLAIM_COLUMNS = ("shard", "seq", "job_id", "attempt", "msg_group")


@dataclass(frozen=True, slots=True)
class Epoch:
    number: int
    state: str
    jobs: int
    claims: Any = field(default=None, repr=False, compare=False)
    """Its claims as a table of `TO_PUBLISH`, if this driver has just frozen it; else they are in the ledger alone."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A job that can never be published as it is."""

    job_id: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in the store, and what is out."""

    jobs: int
    """Due, whether their groups hold them or not."""
    lag_ms: int
    """How long the first of them has been due."""
    late: int
    """Expired, but not marked so yet."""
    pools: Mapping[str, PoolDue]


class Ledger:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, *, fence: int, now_ms: int) -> None:
        """Shut out every driver before this one."""
        with writing(self._engine) as connection:
            if connection.dialect.name == "postgresql":
                # A driver that was stopped in the middle of its COPY holds the newest row as long as it is: say so.
                connection.execute(text(f"SET LOCAL lock_timeout = {LOCKED_MS}"))
            number = _newest(connection, fence) + 1
            _insert_epoch(connection, number, fence, state="marked", jobs=0, now_ms=now_ms)
            connection.execute(update(epochs).where(epochs.c.epoch == number).values(marked_ms=now_ms))

    def forget(self, *, now_ms: int, for_s: float = 1.0) -> None:
        """Forget old epochs, for about `for_s`: a driver that has more of them has other work, and comes again."""
        end_s = time.monotonic() + for_s
        for _ in forget_epochs(self._engine, before_ms=now_ms - _KEEP_MS):
            if time.monotonic() > end_s:
                return

    def unfinished(self) -> Epoch | None:
        """The epoch that a driver left behind."""
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
        """All of the plan, or none of it. `planned`: rows of `TO_PUBLISH`."""
        with writing(self._engine) as connection:
            number = _newest(connection, fence) + 1
            _insert_epoch(connection, number, fence, state="frozen", jobs=planned.num_rows, now_ms=now_ms)
            # By place, which comes close to the order in which the jobs were added: the mark reads the claims as they
            # lie here, and finds each job beside the one before. Shard after shard, it takes a third longer.
            planned = planned.sort_by("seq")
            columns = {name: planned.column(name) for name in _CLAIM_COLUMNS}
            rows = pa.table({"epoch": pa.repeat(number, planned.num_rows), **columns})
            insert_rows(connection, claims, rows)
        return Epoch(number, "frozen", planned.num_rows, planned)

    def published(self, epoch: int, *, refused: Sequence[Refused], fence: int, now_ms: int) -> None:
        """Refused jobs end here, in ERROR: a driver that marks the epoch after a crash no longer knows of them."""
        job = dispatch_jobs.c
        with writing(self._engine) as connection:
            _newest(connection, fence)
            for one in refused:
                guard = and_(job.id == one.job_id, job.attempt == one.attempt, job.status == "PENDING")
                ended = {"status": "ERROR", "last_error": one.reason, "completed_ms": now_ms}
                connection.execute(update(dispatch_jobs).where(guard).values(ended))
            # Only from `frozen`: a driver that fell asleep right here must not open a marked epoch again.
            this = and_(epochs.c.epoch == epoch, epochs.c.state == "frozen")
            connection.execute(update(epochs).where(this).values(state="published"))

    def mark(self, epoch: int, *, jobs: int, fence: int, now_ms: int) -> int:
        """QUEUED, where still PENDING with the attempt that was claimed; returns how many. `jobs`: what it claimed."""
        first, *rest = self._parts(epoch, jobs)
        # If one part fails, the other stays done, and the next driver marks what is left.
        mark = partial(self._mark, epoch, fence=fence, now_ms=now_ms)
        beside = [begun(partial(mark, part), name="marks") for part in rest]
        marked = mark(first) + sum(part.result() for part in beside)
        with writing(self._engine) as connection:
            _newest(connection, fence)
            connection.execute(update(epochs).where(epochs.c.epoch == epoch).values(state="marked", marked_ms=now_ms))
        return marked

    def _parts(self, epoch: int, jobs: int) -> list[ColumnElement[bool]]:
        """Split by place: two transactions that write to the same pages would wait for each other."""
        if jobs < _MANY or self._engine.dialect.name != "postgresql":
            return [true()]
        with reading(self._engine) as connection:
            last = connection.execute(select(func.max(claims.c.seq)).where(claims.c.epoch == epoch)).scalar_one() or 0
        return [claims.c.seq <= last // 2, claims.c.seq > last // 2]

    def _mark(self, epoch: int, part: ColumnElement[bool], *, fence: int, now_ms: int) -> int:
        job = dispatch_jobs.c
        claimed = and_(claims.c.epoch == epoch, claims.c.job_id == job.id, claims.c.attempt == job.attempt)
        queued = {"status": "QUEUED", "queued_ms": now_ms, "queued_epoch": epoch}
        with writing(self._engine) as connection:
            _newest(connection, fence)
            return connection.execute(
                update(dispatch_jobs).where(claimed, part, job.status == "PENDING").values(queued)
            ).rowcount

    def look(self, *, now_ms: int) -> Backlog:
        job = dispatch_jobs.c
        pending = job.status == "PENDING"
        due = and_(pending, or_(job.scheduled_ms.is_(None), job.scheduled_ms <= now_ms))
        question = (
            select(
                job.pool,
                func.count().filter(due).label("due"),
                func.min(case((due, due_since()))).label("oldest_ms"),
                func.count().filter(and_(pending, job.expires_ms <= now_ms)).label("late"),
                func.count().filter(job.status != "PENDING").label("out"),
            )
            .where(job.status.in_(("PENDING", "QUEUED", "IN_PROGRESS")))
            .group_by(job.pool)
        )
        with reading(self._engine) as connection:
            pools = connection.execute(question).all()
        oldest_ms = min((pool.oldest_ms for pool in pools if pool.oldest_ms is not None), default=now_ms)
        return Backlog(
            sum(pool.due for pool in pools),
            lag_ms=max(0, now_ms - oldest_ms),
            late=sum(pool.late for pool in pools),
            pools={pool.pool: PoolDue(pool.due, pool.out) for pool in pools},
        )

    def expire(self, *, now_ms: int) -> int:
        job = dispatch_jobs.c
        late = and_(job.status == "PENDING", job.expires_ms <= now_ms)
        with writing(self._engine) as connection:
            ended = {"status": "EXPIRED", "completed_ms": now_ms}
            return connection.execute(update(dispatch_jobs).where(late).values(ended)).rowcount

    def reset(self, jobs: Iterable[tuple[str, int, str]], *, fence: int) -> int:
        """(id, attempt, status) → PENDING as the next attempt, if that still holds. All at once: groups go whole."""
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
    number, newest_fence = connection.execute(select(func.max(epochs.c.epoch), func.max(epochs.c.fence))).one()
    if newest_fence is not None and newest_fence > fence:
        raise Fenced("another driver has taken over the feed (is there none? another Redis gave it the lead)")
    return int(number or 0)


def _insert_epoch(connection: Connection, number: int, fence: int, *, state: str, jobs: int, now_ms: int) -> None:
    # The number is the lock: of two drivers that see the same newest epoch, one gets it and the other an error.
    row = {"epoch": number, "fence": fence, "state": state, "jobs": jobs, "created_ms": now_ms}
    connection.execute(insert(epochs), row)
