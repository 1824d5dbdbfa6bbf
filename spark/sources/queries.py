"""What the pipeline asks of the job store, in SQL that PostgreSQL and SQLite both know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.types import StructType
from sqlalchemy import BigInteger, Select, and_, case, func, literal, or_, select, tuple_

from fleet.jobs.schema import TO_FAN_OUT, claims, dispatch_attempts, dispatch_jobs, events, subscriptions
from spark import schemas
from spark.transforms.plan import IMMEDIATE

_J = dispatch_jobs.c
_IN_GROUP = func.nullif(_J.msg_group, "")
"""Another program may write an empty name where it means none."""
_GROUP = _IN_GROUP.label("msg_group")
_DECIDED_BY = (
    _J.id,
    _GROUP,
    _J.mode,
    _J.status,
    _J.sequence,
    _J.created_ms,
    _J.scheduled_ms,
    _J.expires_ms,
    _J.attempt,
    case((_J.last_error.is_(None), 0), else_=1).label("tried"),
)
_TO_PLAN = (*_DECIDED_BY, _J.pool)
_ORDER = (_J.sequence, _J.created_ms, _J.id)


def to_plan(*, now_ms: int, window: int) -> Select[Any]:
    """PENDING jobs, and what their groups have out or in error.

    Of a group that is 200,000 jobs deep, `window` jobs of each kind are enough: by mode, and by whether they are due,
    are not yet, were put back, or wait for a retry. No rule of the plan looks further than the first few of a kind.
    """
    due = func.coalesce(_J.scheduled_ms, 0) <= now_ms
    untried = _J.last_error.is_(None)
    waits = case((due, 0), (and_(untried, _J.attempt == 1), 1), (untried, 2), else_=3)
    place = func.row_number().over(partition_by=(_IN_GROUP, _J.mode, waits), order_by=_ORDER)
    unbounded = or_(_IN_GROUP.is_(None), and_(_J.mode == IMMEDIATE, due)).label("unbounded")
    alive = and_(_J.status == "PENDING", func.coalesce(_J.expires_ms, now_ms + 1) > now_ms)
    pending = select(*_TO_PLAN, place.label("place"), unbounded).where(alive).subquery()
    columns = [pending.c[column.name] for column in _TO_PLAN]
    first = select(*columns).where(or_(pending.c.unbounded, pending.c.place <= window))
    waiting = select(_J.msg_group).where(_J.status == "PENDING", _J.msg_group.is_not(None)).distinct()
    siblings = select(*_TO_PLAN).where(
        _J.status.in_(("QUEUED", "IN_PROGRESS", "ERROR")), _J.msg_group.in_(waiting.scalar_subquery())
    )
    both = first.union_all(siblings).subquery()
    return select(both, literal(now_ms, BigInteger).label("read_ms"))


def of_group(job_id: str) -> Select[Any]:
    """A job, and the jobs of its group that are before it or out: all that its turn depends on."""
    one = dispatch_jobs.alias("one")
    place = tuple_(_J.sequence, _J.created_ms, _J.id)
    before = and_(_J.status.in_(("PENDING", "ERROR")), place < tuple_(one.c.sequence, one.c.created_ms, one.c.id))
    siblings = and_(_J.msg_group == one.c.msg_group, or_(before, _J.status.in_(("QUEUED", "IN_PROGRESS"))))
    return select(*_DECIDED_BY).join(one, one.c.id == job_id).where(or_(_J.id == job_id, siblings))


def under_way() -> Select[Any]:
    names = (
        _J.id,
        _GROUP,
        _J.mode,
        _J.status,
        _J.sequence,
        _J.created_ms,
        _J.attempt,
        _J.queued_ms,
        _J.claimed_until_ms,
    )
    return select(*names).where(_J.status.in_(("QUEUED", "IN_PROGRESS")))


def to_publish(*, epoch: int, shard: int) -> Select[Any]:
    """One shard of an epoch, as the ledger has it, without what was published before a crash and taken since."""
    still = and_(_J.id == claims.c.job_id, _J.attempt == claims.c.attempt, _J.status == "PENDING")
    return (
        select(
            claims.c.shard, claims.c.seq, claims.c.job_id, claims.c.attempt,
            claims.c.msg_group, _J.mode, _J.pool,
        )
        .join(dispatch_jobs, still)
        .where(claims.c.epoch == epoch, claims.c.shard == shard)
        .order_by(claims.c.seq)
    )  # fmt: skip


def events_of_batch(*, batch: int) -> Select[Any]:
    e = events.c
    return select(e.id, e.type, func.nullif(e.msg_group, "").label("msg_group"), e.payload, e.created_ms).where(
        TO_FAN_OUT, e.fanned_out == batch
    )


def past_events(*, since_ms: int) -> Select[Any]:
    e = events.c
    columns = (e.id, e.type, func.nullif(e.msg_group, "").label("msg_group"), e.payload, e.created_ms)
    # What is still to be fanned out reaches every subscription anyway.
    return select(*columns).where(e.fanned_out == 1, e.created_ms >= since_ms).order_by(e.created_ms, e.id)


def all_subscriptions() -> Select[Any]:
    s = subscriptions.c
    return select(s.name, s.pattern, s.target_url, s.mode, s.pool).where(s.enabled != 0)


def told_attempts(*, since_ms: int) -> Select[Any]:
    """All attempts of jobs that have one since then, earlier ones too: the report must know which was the first."""
    a = dispatch_attempts.c
    columns = (
        a.job_id, a.attempt, a.started_ms, a.ended_ms, a.outcome, a.error, a.target_url,
        func.nullif(a.msg_group, "").label("msg_group"), a.pool,
    )  # fmt: skip
    return select(*columns).where(a.job_id.in_(_delivered_since(since_ms))) if since_ms else select(*columns)


def told_jobs(*, since_ms: int) -> Select[Any]:
    columns = (
        _J.id, _GROUP, _J.mode, _J.status, _J.sequence, _J.created_ms, _J.scheduled_ms, _J.pool, _J.target_url
    )  # fmt: skip
    touched = or_(_J.created_ms >= since_ms, _J.id.in_(_delivered_since(since_ms)))
    return select(*columns).where(touched) if since_ms else select(*columns)


def _delivered_since(since_ms: int) -> Any:
    return select(dispatch_attempts.c.job_id).where(dispatch_attempts.c.started_ms >= since_ms).scalar_subquery()


QUESTIONS: Mapping[str, tuple[StructType, Callable[..., Select[Any]]]] = {
    "to_plan": (schemas.TO_PLAN, to_plan),
    "under_way": (schemas.UNDER_WAY, under_way),
    "to_publish": (schemas.TO_PUBLISH, to_publish),
    "events_of_batch": (schemas.EVENTS, events_of_batch),
    "subscriptions": (schemas.SUBSCRIPTIONS, all_subscriptions),
    "told_attempts": (schemas.ATTEMPTS, told_attempts),
    "told_jobs": (schemas.TOLD_JOBS, told_jobs),
}
