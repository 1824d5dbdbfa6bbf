"""Which jobs go now, and in what order. `spark/why.py` says the same in plain Python, for one group at a time.

Of a group, in the order of (sequence, created, id):

- IMMEDIATE goes as soon as it is due.
- NEXT_ON_ERROR goes up to `window` at a time. One that failed, or waits for its retry, is passed by. One that is not
  due yet is not, nor is a BLOCK_ON_ERROR job whose outcome is open: first attempts stay in order.
- BLOCK_ON_ERROR goes when nothing before it is left, failed ones included, and no other one of its kind is out.

Since the epoch is a prefix of all that may go in that same order, what it takes of a group is a prefix too.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812

IMMEDIATE, NEXT, BLOCK = "IMMEDIATE", "NEXT_ON_ERROR", "BLOCK_ON_ERROR"
ORDER = ("sequence", "created_ms", "id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of it may go."""

    window: int
    """NEXT_ON_ERROR jobs of one group that are out at a time."""
    room: int | None
    """Jobs in this epoch; None: there is room for all."""
    shards: int


def plan(jobs: DataFrame, *, now_ms: int, limits: Limits) -> DataFrame:
    """`jobs` holds, of each group with a PENDING job, all that are not over: see `spark.sources.queries`."""
    judged = jobs.transform(lambda rows: without_expired(rows, now_ms)).transform(lambda rows: with_state(rows, now_ms))
    alone = judged.filter(F.col("message_group").isNull() & F.col("due"))
    grouped = judged.filter(F.col("message_group").isNotNull())
    in_turn = (
        grouped.transform(with_what_stands_before)
        .transform(with_barriers)
        .transform(only_unheld)
        .transform(lambda rows: within_window(rows, limits.window))
    )
    columns = ("id", "message_group", "sequence", "created_ms", "attempt", "mode", "pool")
    going = alone.select(*columns).unionByName(in_turn.select(*columns))
    if limits.room is not None:
        going = going.orderBy(*ORDER).limit(limits.room)
    return going.transform(lambda rows: as_claims(rows, limits.shards))


def without_expired(jobs: DataFrame, now_ms: int) -> DataFrame:
    expired = (F.col("status") == "PENDING") & (F.coalesce("expires_ms", F.lit(now_ms + 1)) <= now_ms)
    return jobs.filter(~expired)


def with_state(jobs: DataFrame, now_ms: int) -> DataFrame:
    """due, early (its first time is still to come), retrying (it failed, and waits), out (published, no outcome)."""
    pending = F.col("status") == "PENDING"
    later = F.coalesce("scheduled_ms", F.lit(0)) > now_ms
    return jobs.withColumns(
        {
            "due": pending & ~later,
            "early": pending & later & (F.col("attempt") == 1),
            "retrying": pending & later & (F.col("attempt") > 1),
            "out": F.col("status").isin("QUEUED", "IN_PROGRESS"),
            "lane": F.xxhash64("message_group"),
        }
    )


def with_what_stands_before(jobs: DataFrame) -> DataFrame:
    whole = _in_order().rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    mode = F.col("mode")
    return jobs.withColumns(
        {
            "trouble_before": _before((F.col("status") == "ERROR") | F.col("retrying")),
            "early_before": _before(F.col("early") & (mode != IMMEDIATE)),
            # An unordered job whose time has not come is in nobody's way.
            "any_before": _before(~(F.col("early") & (mode == IMMEDIATE))),
            "block_out": F.max(F.col("out") & (mode == BLOCK)).over(whole),
            "next_out": F.sum((F.col("out") & (mode == NEXT)).cast("int")).over(whole),
        }
    )


def with_barriers(jobs: DataFrame) -> DataFrame:
    """A BLOCK_ON_ERROR job bars the way while its outcome is open, unless an error keeps it from having one."""
    will_go = (F.col("due") | F.col("early")) & ~F.col("trouble_before")
    barrier = (F.col("mode") == BLOCK) & (F.col("out") | will_go)
    return jobs.withColumn("barrier_before", _before(barrier))


def only_unheld(jobs: DataFrame) -> DataFrame:
    free = (
        F.when(F.col("mode") == IMMEDIATE, F.lit(True))
        .when(F.col("mode") == NEXT, ~F.col("early_before") & ~F.col("barrier_before"))
        .otherwise(~F.col("any_before") & ~F.col("block_out"))
    )
    return jobs.filter(F.col("due") & free)


def within_window(jobs: DataFrame, window: int) -> DataFrame:
    up_to_here = _in_order().rowsBetween(Window.unboundedPreceding, 0)
    is_next = F.col("mode") == NEXT
    place = F.sum(is_next.cast("int")).over(up_to_here)
    fits = place <= window - F.col("next_out")
    return jobs.withColumn("fits", ~is_next | fits).filter("fits")


def as_claims(jobs: DataFrame, shards: int) -> DataFrame:
    """A group's jobs are in one shard, so that one task publishes them, one after the other."""
    lane = F.coalesce("message_group", "id").cast("binary")
    in_shard = Window.partitionBy("shard").orderBy(*ORDER)
    return (
        jobs.withColumn("shard", F.pmod(F.crc32(lane), F.lit(shards)).cast("int"))
        .withColumn("seq", F.row_number().over(in_shard))
        .select("shard", "seq", F.col("id").alias("job_id"), "attempt", "message_group", "mode", "pool")
    )


def _before(fact: Column) -> Column:
    """Whether it is so for any job of the group that stands before."""
    before = _in_order().rowsBetween(Window.unboundedPreceding, -1)
    return F.coalesce(F.max(fact).over(before), F.lit(False))


def _in_order() -> WindowSpec:
    # The same for every question, so that Spark sorts once; and by a number first, which it compares in place.
    return Window.partitionBy("lane", "message_group").orderBy(*ORDER)
