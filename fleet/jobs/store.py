"""The job store: every change of a job, each guarded by the status and the attempt that it changes from.

Blocking calls, safe from several threads. An event loop calls them on threads of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    Integer,
    Table,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from fleet.clock import Clock, SystemClock
from fleet.config.settings import Settings
from fleet.jobs import schema
from fleet.jobs.database import database_url, open_engine, reading, translated, writing
from fleet.jobs.decide import NextState, decide
from fleet.jobs.records import (
    FINISHED,
    STATUSES,
    Added,
    Attempt,
    Busy,
    Event,
    Expired,
    Job,
    NewEvent,
    NewJob,
    Over,
    Status,
    Subscription,
    Take,
    Taken,
)
from fleet.jobs.rising import Rising, begins_its_jobs
from fleet.jobs.schema import dispatch_attempts, dispatch_jobs, events, subscriptions
from fleet.outcome import Delivered, Outcome
from fleet.sources import ulid

MARGIN_MS = 15_000
"""Added to a job's timeout in a take: for what a server does besides the delivery, and for a clock that is wrong."""

_NEW_JOB = tuple(item.name for item in dataclasses.fields(NewJob))


def open_store(
    settings: Settings, *, connections: int = 8, durable: bool = True, clock: Clock | None = None
) -> JobStore:
    """The store, with its tables as they have to be. `durable`: see `open_engine`."""
    store = JobStore(open_engine(database_url(settings), connections=connections, durable=durable), clock=clock)
    store.migrate()
    return store


# Made once: SQLAlchemy takes longer to make these than a database takes to run them.
_WANTED = and_(dispatch_jobs.c.id == bindparam("job"), dispatch_jobs.c.attempt == bindparam("turn", type_=Integer))
_LAPSED = func.coalesce(dispatch_jobs.c.claimed_until_ms, 0) <= bindparam("now", type_=BigInteger)
_LATE = and_(dispatch_jobs.c.expires_ms.is_not(None), dispatch_jobs.c.expires_ms <= bindparam("now", type_=BigInteger))
_UNTIL = (
    bindparam("now", type_=BigInteger)
    + bindparam("margin", type_=BigInteger)
    + cast(dispatch_jobs.c.timeout_seconds, BigInteger) * 1000
)
_FREE = or_(dispatch_jobs.c.status.in_(("PENDING", "QUEUED")), and_(dispatch_jobs.c.status == "IN_PROGRESS", _LAPSED))
_DUE = bindparam("due", type_=BigInteger)
_AGAIN = {
    "status": "PENDING", "attempt": dispatch_jobs.c.attempt + 1, "claimed_until_ms": None, "queued_ms": None,
    "queued_epoch": None,
}  # fmt: skip
_RETURN = update(dispatch_jobs).where(_WANTED, _FREE).values(scheduled_ms=_DUE, **_AGAIN)
_PLACE = tuple_(dispatch_jobs.c.sequence, dispatch_jobs.c.created_ms, dispatch_jobs.c.id)
_MAY_BE_OUT = and_(dispatch_jobs.c.status.in_(("PENDING", "QUEUED")), dispatch_jobs.c.last_error.is_(None))
_NEXT_ONES = (
    select(dispatch_jobs.c.id)
    .where(
        dispatch_jobs.c.msg_group == bindparam("group"),
        dispatch_jobs.c.mode == "NEXT_ON_ERROR",
        _MAY_BE_OUT,
        tuple_(bindparam("its_sequence"), bindparam("its_created", type_=BigInteger), bindparam("job")) < _PLACE,
    )
    .order_by(dispatch_jobs.c.sequence, dispatch_jobs.c.created_ms, dispatch_jobs.c.id)
    .limit(bindparam("most", type_=Integer))
)
_NOT_BEFORE_DUE = case((dispatch_jobs.c.scheduled_ms > _DUE, dispatch_jobs.c.scheduled_ms), else_=_DUE)
_RETURN_BEHIND = (
    # Said again: a job that is taken or cancelled meanwhile is waited for, and then judged by this alone.
    update(dispatch_jobs)
    .where(dispatch_jobs.c.id.in_(_NEXT_ONES), _MAY_BE_OUT)
    .values(scheduled_ms=_NOT_BEFORE_DUE, **_AGAIN)
)
_TAKE = (
    update(dispatch_jobs)
    .where(_WANTED, _FREE)
    .values(
        status=case((_LATE, "EXPIRED"), else_="IN_PROGRESS"),
        claimed_until_ms=case((_LATE, None), else_=_UNTIL),
        completed_ms=case((_LATE, bindparam("now", type_=BigInteger)), else_=None),
    )
    .returning(*dispatch_jobs.c)
)
# Whether the job is still ours. A take is known by its end, since each later one ends later.
_OURS = and_(
    _WANTED,
    dispatch_jobs.c.status == "IN_PROGRESS",
    dispatch_jobs.c.claimed_until_ms == bindparam("until", type_=BigInteger),
)
_HELD = select(dispatch_jobs.c.id).where(_OURS).with_for_update()
_SETTLE = update(dispatch_jobs).where(_OURS).values({name: bindparam(name) for name in NextState.COLUMNS})
_JOB = select(dispatch_jobs).where(dispatch_jobs.c.id == bindparam("job"))


class JobStore:
    def __init__(self, engine: Engine, *, clock: Clock | None = None) -> None:
        self.engine = engine
        self._clock = clock or SystemClock()
        self._rising = Rising()

    def migrate(self) -> None:
        with translated(self.engine):
            schema.migrate(self.engine)

    def close(self) -> None:
        self.engine.dispose()

    # Adding ---------------------------------------------------------------------------------------

    def add_jobs(self, jobs: Sequence[NewJob]) -> Added:
        """All in one transaction. A job whose id or idempotency key is there already changes nothing."""
        if not jobs:
            return Added()
        rows = self._rows(jobs)
        with writing(self.engine) as connection:
            return _insert_new(connection, dispatch_jobs, rows)

    def add_events(self, given: Sequence[NewEvent]) -> Added:
        if not given:
            return Added()
        now_ms = self._clock.wall_ms()
        rows = [
            {
                **dataclasses.asdict(one),
                "id": id_,
                "created_ms": self._rising.at(one.msg_group, begins_its_jobs(id_), now_ms),
            }
            for one, fresh in zip(given, ulid.take(len(given), now_ms), strict=True)
            for id_ in [one.id or fresh]
        ]
        with writing(self.engine) as connection:
            return _insert_new(connection, events, rows)

    def _rows(self, jobs: Sequence[NewJob]) -> list[dict[str, Any]]:
        now_ms = self._clock.wall_ms()
        rows: list[dict[str, Any]] = []
        for job, fresh in zip(jobs, ulid.take(len(jobs), now_ms), strict=True):
            row = {name: getattr(job, name) for name in _NEW_JOB}
            row["id"] = job.id or fresh
            created_ms = self._rising.at(job.msg_group, row["id"], now_ms)
            rows.append({**row, "created_ms": created_ms, "status": "PENDING", "attempt": 1})
        return rows

    # Looking --------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job | None:
        with reading(self.engine) as connection:
            return _job(connection, job_id)

    def jobs(
        self, *, status: str | None = None, group: str | None = None, pool: str | None = None, limit: int = 100
    ) -> list[Job]:
        """The newest first; `limit` 0 is all."""
        question = select(dispatch_jobs).order_by(dispatch_jobs.c.created_ms.desc(), dispatch_jobs.c.id.desc())
        for column, wanted in (("status", status), ("msg_group", group), ("pool", pool)):
            if wanted is not None:
                question = question.where(dispatch_jobs.c[column] == wanted)
        if limit:
            question = question.limit(limit)
        with reading(self.engine) as connection:
            return [Job(**row) for row in connection.execute(question).mappings()]

    def events(self, *, group: str | None = None, limit: int = 100) -> list[Event]:
        """The newest first; `limit` 0 is all."""
        question = select(events).order_by(events.c.created_ms.desc(), events.c.id.desc())
        if group is not None:
            question = question.where(events.c.msg_group == group)
        if limit:
            question = question.limit(limit)
        with reading(self.engine) as connection:
            return [Event(**row) for row in connection.execute(question).mappings()]

    def attempts(self, job_id: str) -> list[Attempt]:
        question = select(dispatch_attempts).where(dispatch_attempts.c.job_id == job_id)
        with reading(self.engine) as connection:
            rows = connection.execute(question.order_by(dispatch_attempts.c.started_ms)).mappings()
            return [Attempt(**row) for row in rows]

    def stats(self) -> dict[Status, int]:
        """How many jobs there are of each status, zeros included."""
        question = select(dispatch_jobs.c.status, func.count()).group_by(dispatch_jobs.c.status)
        with reading(self.engine) as connection:
            found: dict[str, int] = {row[0]: row[1] for row in connection.execute(question)}
        return {status: found.get(status, 0) for status in STATUSES}

    # By hand --------------------------------------------------------------------------------------

    def retry(self, job_id: str) -> bool:
        """ERROR → PENDING, as the next attempt, due now. False: it is not in ERROR."""
        return self._retry(dispatch_jobs.c.id == job_id) == 1

    def retry_all(self, *, group: str | None = None, pool: str | None = None) -> int:
        return self._retry(*_of(group, pool))

    def cancel(self, job_id: str) -> bool:
        """PENDING, QUEUED or ERROR → CANCELLED. False: it is under way or finished, or there is no such job.

        A job in ERROR holds the BLOCK_ON_ERROR jobs behind it: it is given up only by its id, not with its group.
        """
        return self._cancel(("PENDING", "QUEUED", "ERROR"), dispatch_jobs.c.id == job_id) == 1

    def cancel_all(self, *, group: str | None = None, pool: str | None = None) -> int:
        """PENDING or QUEUED → CANCELLED; returns how many."""
        return self._cancel(("PENDING", "QUEUED"), *_of(group, pool))

    def _retry(self, *which: ColumnElement[bool]) -> int:
        again = {
            "status": "PENDING", "attempt": dispatch_jobs.c.attempt + 1, "scheduled_ms": None, "completed_ms": None,
            "queued_ms": None, "queued_epoch": None,
        }  # fmt: skip
        with writing(self.engine) as connection:
            wanted = update(dispatch_jobs).where(dispatch_jobs.c.status == "ERROR", *which)
            return connection.execute(wanted.values(again)).rowcount

    def _cancel(self, statuses: Sequence[Status], *which: ColumnElement[bool]) -> int:
        """One statement looks and changes: the attempt that it changes is the one that it saw."""
        gone = {"status": "CANCELLED", "completed_ms": self._clock.wall_ms()}
        with writing(self.engine) as connection:
            wanted = update(dispatch_jobs).where(dispatch_jobs.c.status.in_(statuses), *which)
            return connection.execute(wanted.values(gone)).rowcount

    # Processing -----------------------------------------------------------------------------------

    def take(self, job_id: str, attempt: int, *, margin_ms: int = MARGIN_MS) -> Take:
        """PENDING or QUEUED, or IN_PROGRESS past its time → IN_PROGRESS. Of two who ask one is told `Taken`."""
        given = {"job": job_id, "turn": attempt, "now": self._clock.wall_ms(), "margin": margin_ms}
        with writing(self.engine) as connection:
            row = connection.execute(_TAKE, given).mappings().first()
            found = _job(connection, job_id) if row is None else Job(**row)
        if row is not None and found is not None:
            return Taken(found) if found.status == "IN_PROGRESS" else Expired()
        return why_not(found, attempt)

    def return_(self, job: Job, *, due_ms: int, window: int) -> Over | Busy | None:
        """PENDING again as the next attempt, with none recorded: no request was made. Not None: it cannot be taken.

        Jobs of its group that may be out behind it go back too: first attempts stay in order, and messages of theirs
        that are on their way deliver nothing. At most `window` are out; it does no harm to return one that is not.
        """
        given = {"job": job.id, "turn": job.attempt, "now": self._clock.wall_ms(), "due": due_ms}
        behind = {
            "group": job.msg_group, "its_sequence": job.sequence, "its_created": job.created_ms, "job": job.id,
            "due": due_ms, "most": window,
        }  # fmt: skip
        with writing(self.engine) as connection:
            if connection.execute(_RETURN, given).rowcount == 0:
                return why_not(_job(connection, job.id), job.attempt)
            if job.msg_group and job.mode == "NEXT_ON_ERROR" and job.last_error is None:
                connection.execute(_RETURN_BEHIND, behind)
        return None

    def settle(
        self, job: Job, outcome: Outcome, *, started_ms: int, status_code: int | None, ended_ms: int | None = None
    ) -> NextState | None:
        """Record the attempt of a job that was taken, and what follows from it. None: it is no longer ours.

        The attempt is recorded all the same: it was made.
        """
        ended_ms = self._clock.wall_ms() if ended_ms is None else ended_ms
        with writing(self.engine) as connection:
            # The job first: another settlement of it waits here, and the attempts counted below are all there are.
            held = connection.execute(_HELD, _mark(job)).first() is not None
            failed = 0 if isinstance(outcome, Delivered) else _failed_attempts(connection, job)
            then = decide(job, outcome, failed_before=failed, now_ms=ended_ms)
            record = Attempt(
                job_id=job.id, attempt=job.attempt, started_ms=started_ms, ended_ms=ended_ms, status_code=status_code,
                outcome=then.outcome, error=then.error, target_url=job.target_url, msg_group=job.msg_group,
                pool=job.pool,
            )  # fmt: skip
            _insert_new(connection, dispatch_attempts, [dataclasses.asdict(record)])
            if not held:
                return None
            connection.execute(_SETTLE, {**_mark(job), **then.changes(job, ended_ms)})
        return then

    # Subscriptions --------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> bool:
        """False: there is one of that name already."""
        row = {**dataclasses.asdict(subscription), "created_ms": self._clock.wall_ms()}
        with writing(self.engine) as connection:
            return bool(_insert_new(connection, subscriptions, [row]).ids)

    def unsubscribe(self, name: str) -> bool:
        with writing(self.engine) as connection:
            return connection.execute(delete(subscriptions).where(subscriptions.c.name == name)).rowcount == 1

    def subscriptions(self) -> list[Subscription]:
        with reading(self.engine) as connection:
            rows = connection.execute(select(subscriptions).order_by(subscriptions.c.name)).mappings()
            return [Subscription(**row) for row in rows]


def _of(group: str | None, pool: str | None) -> list[ColumnElement[bool]]:
    named = ((dispatch_jobs.c.msg_group, group), (dispatch_jobs.c.pool, pool))
    return [column == wanted for column, wanted in named if wanted is not None]


def _mark(job: Job) -> dict[str, Any]:
    """What `_OURS` compares."""
    return {"job": job.id, "turn": job.attempt, "until": job.claimed_until_ms}


def _failed_attempts(connection: Connection, job: Job) -> int:
    """How many earlier attempts failed. Not the attempt's number: a lost attempt was not the target's fault.

    Nor was one that was put back as lost, and turns out to have been delivered.
    """
    question = select(func.count(func.distinct(dispatch_attempts.c.attempt))).where(
        dispatch_attempts.c.job_id == job.id,
        dispatch_attempts.c.attempt < job.attempt,
        dispatch_attempts.c.outcome != "SUCCESS",
    )
    return int(connection.execute(question).scalar_one())


def why_not(found: Job | None, attempt: int) -> Busy | Over:
    """Why this attempt of a job cannot be taken."""
    if found is None:
        return Over("there is no such job")
    if found.status in FINISHED:
        return Over(f"the job is {found.status}")
    if found.attempt != attempt:
        return Over(f"attempt {found.attempt} is the one that counts now")
    return Busy(found.claimed_until_ms or 0)


def _job(connection: Connection, job_id: str) -> Job | None:
    row = connection.execute(_JOB, {"job": job_id}).mappings().first()
    return None if row is None else Job(**row)


def _insert_new(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> Added:
    key = next(iter(table.primary_key.columns))
    if connection.dialect.name == "postgresql":
        ours = postgresql.insert(table).on_conflict_do_nothing().returning(key)
    else:
        ours = sqlite.insert(table).on_conflict_do_nothing().returning(key)
    ids = tuple(connection.execute(ours, rows).scalars())
    return Added(ids, len(rows) - len(ids))
