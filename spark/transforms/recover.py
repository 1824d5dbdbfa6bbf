"""Which jobs were lost on their way, and which go back with them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark.transforms.plan import IMMEDIATE, ORDER


def suspects(jobs: DataFrame, *, now_ms: int, threshold_ms: int, oldest_waiting_ms: int) -> DataFrame:
    """Jobs of which nothing was heard, and whose messages do not wait in the queue.

    A message goes in before its job is marked, and the queue's oldest one is no younger than any other: a job that was
    marked before the oldest came in has no message there. `oldest_waiting_ms` is now where the queue is empty.
    """
    # One that was taken up before its epoch was marked has no such time; its claim ends later than that.
    marked_ms = F.coalesce("queued_ms", "claimed_until_ms", "created_ms")
    silent = (F.col("status") == "QUEUED") & (marked_ms <= now_ms - threshold_ms)
    abandoned = (F.col("status") == "IN_PROGRESS") & (F.coalesce("claimed_until_ms", F.lit(0)) <= now_ms)
    return jobs.filter((silent | abandoned) & (marked_ms < oldest_waiting_ms))


def to_reset(jobs: DataFrame, lost: DataFrame) -> DataFrame:
    """The lost ones, and of their groups what was published behind the first of them. `lost` has a column `id`."""
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
