"""Jobs that were lost between the queue and their outcome go back to PENDING."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import functions as F  # noqa: N812
from sqlalchemy import Engine, and_, func, or_, select

from fleet.jobs.database import reading
from fleet.jobs.schema import dispatch_jobs
from spark.steps.setup import Setup, spark_errors
from spark.transforms.recover import suspects, to_reset

MOST = 10_000


@dataclass(frozen=True, slots=True)
class Recovered:
    lost: int
    reset: int
    """With what was published behind them in their groups."""


def recover(setup: Setup) -> Recovered:
    fence, now_ms = setup.lead.fence, setup.now_ms()
    threshold_ms = setup.feed.stale_queued_threshold_minutes * 60_000
    if not setup.attend(lambda: _any_may_be_lost(setup.engine, now_ms=now_ms, threshold_ms=threshold_ms)):
        return Recovered(0, 0)
    oldest_waiting_ms = _oldest_waiting_ms(setup, now_ms)
    if oldest_waiting_ms is None:
        return Recovered(0, 0)
    limits = {"now_ms": now_ms, "threshold_ms": threshold_ms, "oldest_waiting_ms": oldest_waiting_ms}
    ids = setup.attend(lambda: _suspects(setup, limits))
    lost: list[str] = []
    for first in range(0, len(ids), MOST):
        some = ids[first : first + MOST]
        tracked = setup.lead.tracked(some)
        lost += [one for one in some if one not in tracked]
        if len(lost) >= MOST:
            break
    lost.sort()
    if not lost:
        return Recovered(0, 0)
    rows = setup.attend(lambda: _to_reset(setup, lost))
    return Recovered(len(lost), setup.attend(lambda: setup.ledger.reset(rows, fence=fence)))


def _suspects(setup: Setup, limits: dict[str, int]) -> list[str]:
    silent = suspects(setup.ask("under_way"), **limits)
    with spark_errors():
        return [row.id for row in silent.orderBy("sequence", "created_ms", "id").select("id").collect()]


def _to_reset(setup: Setup, lost: list[str]) -> list[tuple[str, int, str]]:
    table = setup.spark.session.createDataFrame([(one,) for one in lost], "id string")
    with spark_errors():
        rows = to_reset(setup.ask("under_way"), table).orderBy(F.col("id")).collect()
    return [(row.id, row.attempt, row.status) for row in rows]


def _any_may_be_lost(engine: Engine, *, now_ms: int, threshold_ms: int) -> bool:
    """The first part of `suspects`, in SQL: a driver with nothing to look for needs no Spark."""
    job = dispatch_jobs.c
    marked_ms = func.coalesce(job.queued_ms, job.claimed_until_ms, job.created_ms)
    silent = and_(job.status == "QUEUED", marked_ms <= now_ms - threshold_ms)
    abandoned = and_(job.status == "IN_PROGRESS", func.coalesce(job.claimed_until_ms, 0) <= now_ms)
    with reading(engine) as connection:
        return connection.execute(select(job.id).where(or_(silent, abandoned)).limit(1)).first() is not None


def _oldest_waiting_ms(setup: Setup, now_ms: int) -> int | None:
    """When the oldest waiting message came in: now if there is none, None if the queue does not say."""
    if setup.lead.depth(setup.to.uri)[0] == 0:
        return now_ms
    oldest_s = setup.lead.oldest_s(setup.to.uri)
    return None if oldest_s is None else now_ms - int(oldest_s * 1000)
