"""Jobs that were lost between the queue and their outcome go back to PENDING."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import functions as F  # noqa: N812

from spark.jobs.setup import Setup, spark_errors
from spark.transforms.recover import suspects, to_reset

MOST = 10_000


@dataclass(frozen=True, slots=True)
class Recovered:
    lost: int
    reset: int
    """With what was published behind them in their groups."""


def recover(setup: Setup) -> Recovered:
    fence, now_ms = setup.line.fence, setup.now_ms()
    oldest_waiting_ms = _oldest_waiting_ms(setup, now_ms)
    if oldest_waiting_ms is None:
        return Recovered(0, 0)
    threshold_ms = setup.feed.stale_queued_threshold_minutes * 60_000
    jobs = setup.ask("under_way")
    silent = suspects(jobs, now_ms=now_ms, threshold_ms=threshold_ms, oldest_waiting_ms=oldest_waiting_ms)
    with spark_errors():
        ids = [row.id for row in silent.orderBy("sequence", "created_ms", "id").select("id").limit(MOST).collect()]
    lost = sorted(set(ids) - setup.line.tracked(ids))
    if not lost:
        return Recovered(0, 0)
    table = setup.spark.session.createDataFrame([(one,) for one in lost], "id string")
    with spark_errors():
        rows = to_reset(jobs, table).orderBy(F.col("id")).collect()
    return Recovered(len(lost), setup.ledger.reset([(r.id, r.attempt, r.status) for r in rows], fence=fence))


def _oldest_waiting_ms(setup: Setup, now_ms: int) -> int | None:
    """When the oldest message that waits came in; now where none does, None where the queue does not say."""
    depth, oldest_s = setup.line.depth(setup.to.uri)
    if depth == 0:
        return now_ms
    return None if oldest_s is None else now_ms - int(oldest_s * 1000)
