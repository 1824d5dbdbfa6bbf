"""Which jobs were lost on their way, and which go back with them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark.transforms.plan import IMMEDIATE, ORDER


def suspects(jobs: DataFrame, *, now_ms: int, threshold_ms: int, oldest_waiting_ms: int) -> DataFrame:
    """Jobs that nothing was heard of, and whose messages do not wait in the queue.

    A message enters the queue before its job is marked. So a job that was marked before the oldest waiting message came
    in has no message there. `oldest_waiting_ms` is the time now if the queue is empty.
    """
    # A job that was taken before its epoch was marked has no `queued_ms`. Its take ends later, which is safe here.
    marked_ms = F.coalesce("queued_ms", "claimed_until_ms", "created_ms")
    silent = (F.col("status") == "QUEUED") & (marked_ms <= now_ms - threshold_ms)
    abandoned = (F.col("status") == "IN_PROGRESS") & (F.coalesce("claimed_until_ms", F.lit(0)) <= now_ms)
    return jobs.filter((silent | abandoned) & (marked_ms < oldest_waiting_ms))


def to_reset(jobs: DataFrame, lost: DataFrame) -> DataFrame:
    """The lost jobs, and what was published behind the first lost job of each group. `lost` has a column `id`."""
    marked = jobs.join(F.broadcast(lost.select("id").withColumn("lost", F.lit(True))), "id", "left").withColumn(
        "lost", F.coalesce("lost", F.lit(False))
    )
    ordered = (F.col("mode") != IMMEDIATE) & F.col("msg_group").isNotNull()
    firsts = (
        marked.filter(F.col("lost") & ordered).groupBy("msg_group").agg(F.min(F.struct(*ORDER)).alias("first_lost"))
    )
    behind = (
        F.col("first_lost").isNotNull()
        & ordered
        & (F.col("status") == "QUEUED")
        & (F.struct(*ORDER) > F.col("first_lost"))
    )
    return (
        marked.join(F.broadcast(firsts), "msg_group", "left")
        .filter(F.col("lost") | F.coalesce(behind, F.lit(False)))
        .select("id", "attempt", "status")
    )
