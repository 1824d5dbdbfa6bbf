"""What is over and old leaves the store, in small transactions, so that nothing else that uses it has to wait.

Events go before their jobs: from an event whose job is gone, a look back would make the job anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Engine, Table, and_, delete, exists, func, select, tuple_

from fleet.jobs.database import reading, writing
from fleet.jobs.records import Status
from fleet.jobs.schema import claims, dispatch_attempts, dispatch_jobs, epochs, events

BATCH = 500
"""Rows in a transaction: payloads have up to 1 MiB each."""
DONE: tuple[Status, ...] = ("COMPLETED", "EXPIRED", "CANCELLED")


@dataclass(slots=True, kw_only=True)
class Pruned:
    jobs: int = 0
    attempts: int = 0
    events: int = 0
    epochs: int = 0
    claims: int = 0


def prune(
    engine: Engine,
    *,
    before_ms: int,
    errors: bool = False,
    dry_run: bool = False,
    on_progress: Callable[[Pruned], None] | None = None,
) -> Pruned:
    """Remove what ended before `before_ms`. `errors`: jobs in ERROR too, which may be what holds their group."""
    statuses: tuple[Status, ...] = (*DONE, "ERROR") if errors else DONE
    if dry_run:
        return _counted(engine, before_ms, statuses)
    pruned = Pruned()
    tell = on_progress or (lambda _: None)
    for ids in _pages(engine, (events.c.id,), _old_events(before_ms)):
        pruned.events += _removed(engine, events, events.c.id, ids)
        tell(pruned)
    for status in statuses:
        # By the index of statuses: it begins with the oldest job, and knows where the old ones end.
        for ids in _pages(engine, (dispatch_jobs.c.created_ms, dispatch_jobs.c.id), _old_jobs(before_ms, status)):
            with writing(engine) as connection:
                # Checked once more: a job may have been retried by hand since it was read.
                still = and_(dispatch_jobs.c.id.in_(ids), _old_jobs(before_ms, status))
                gone = connection.execute(delete(dispatch_jobs).where(still).returning(dispatch_jobs.c.id)).scalars()
                attempts = delete(dispatch_attempts).where(dispatch_attempts.c.job_id.in_(left := list(gone)))
                pruned.attempts += connection.execute(attempts).rowcount
                pruned.jobs += len(left)
            tell(pruned)
    for gone_claims, gone_epochs in forget_epochs(engine, before_ms=before_ms):
        pruned.claims += gone_claims
        pruned.epochs += gone_epochs
        if gone_claims:
            tell(pruned)
    return pruned


def forget_epochs(engine: Engine, *, before_ms: int) -> Iterator[tuple[int, int]]:
    """One step at a time, so that the caller can do other things between: (claims, epochs) that each removed."""
    # One epoch after the other, its claims first: they may be many.
    for (number,) in _all(engine, select(epochs.c.epoch).where(_old_epochs(before_ms)).order_by(epochs.c.epoch)):
        while ids := [row[0] for row in _all(engine, _claims_of(number).limit(BATCH))]:
            yield _removed(engine, claims, claims.c.job_id, ids, claims.c.epoch == number), 0
        yield 0, _removed(engine, epochs, epochs.c.epoch, [number])


def _counted(engine: Engine, before_ms: int, statuses: Sequence[Status]) -> Pruned:
    jobs = _old_jobs(before_ms, *statuses)
    of_them = exists().where(dispatch_jobs.c.id == dispatch_attempts.c.job_id, jobs)
    of_epochs = claims.c.epoch.in_(select(epochs.c.epoch).where(_old_epochs(before_ms)).scalar_subquery())
    return Pruned(
        jobs=_count(engine, dispatch_jobs, jobs),
        attempts=_count(engine, dispatch_attempts, of_them),
        events=_count(engine, events, _old_events(before_ms)),
        epochs=_count(engine, epochs, _old_epochs(before_ms)),
        claims=_count(engine, claims, of_epochs),
    )


def _old_jobs(before_ms: int, *statuses: Status) -> ColumnElement[bool]:
    job = dispatch_jobs.c
    # `created_ms` excludes nothing more; it is there because the index has it.
    return and_(job.status.in_(statuses), job.created_ms < before_ms, job.completed_ms < before_ms)


def _old_events(before_ms: int) -> ColumnElement[bool]:
    return and_(events.c.fanned_out == 1, events.c.created_ms < before_ms)


def _old_epochs(before_ms: int) -> ColumnElement[bool]:
    # The newest stays, however old: the next one's number and fence follow from it.
    newest = select(func.max(epochs.c.epoch)).scalar_subquery()
    return and_(epochs.c.state == "marked", epochs.c.marked_ms < before_ms, epochs.c.epoch < newest)


def _claims_of(epoch: int) -> Any:
    return select(claims.c.job_id).where(claims.c.epoch == epoch)


def _pages(engine: Engine, order: Sequence[Any], which: ColumnElement[bool]) -> Any:
    """Ids, a batch at a time. Each batch goes on behind the one before: the beginning is empty by now."""
    after: tuple[Any, ...] | None = None
    while True:
        question = select(*order).where(which).order_by(*order).limit(BATCH)
        rows = _all(engine, question if after is None else question.where(tuple_(*order) > tuple_(*after)))
        if not rows:
            return
        yield [row[-1] for row in rows]
        after = tuple(rows[-1])


def _all(engine: Engine, question: Any) -> Sequence[Any]:
    with reading(engine) as connection:
        return connection.execute(question).all()


def _count(engine: Engine, table: Table, which: ColumnElement[bool]) -> int:
    with reading(engine) as connection:
        return int(connection.execute(select(func.count()).select_from(table).where(which)).scalar_one())


def _removed(engine: Engine, table: Table, key: Any, ids: Sequence[Any], *which: ColumnElement[bool]) -> int:
    with writing(engine) as connection:
        return connection.execute(delete(table).where(key.in_(ids), *which)).rowcount
