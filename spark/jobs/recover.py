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
    limits = {"now_ms": now_ms, "threshold_ms": threshold_ms, "oldest_waiting_ms": oldest_waiting_ms}
    ids = setup.attend(lambda: _suspects(setup, limits))
    lost = sorted(set(ids) - setup.line.tracked(ids))
    if not lost:
        return Recovered(0, 0)
    rows = setup.attend(lambda: _to_reset(setup, lost))
    return Recovered(len(lost), setup.attend(lambda: setup.ledger.reset(rows, fence=fence)))


def _suspects(setup: Setup, limits: dict[str, int]) -> list[str]:
    silent = suspects(setup.ask("under_way"), **limits)
    with spark_errors():
        return [row.id for row in silent.orderBy("sequence", "created_ms", "id").select("id").limit(MOST).collect()]


def _to_reset(setup: Setup, lost: list[str]) -> list[tuple[str, int, str]]:
    table = setup.spark.session.createDataFrame([(one,) for one in lost], "id string")
    with spark_errors():
        rows = to_reset(setup.ask("under_way"), table).orderBy(F.col("id")).collect()
    return [(row.id, row.attempt, row.status) for row in rows]


def _oldest_waiting_ms(setup: Setup, now_ms: int) -> int | None:
    """When the oldest message that waits came in; now where none does, None where the queue does not say."""
    depth, oldest_s = setup.line.depth(setup.to.uri)
    if depth == 0:
        return now_ms
    return None if oldest_s is None else now_ms - int(oldest_s * 1000)
