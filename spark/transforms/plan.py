"""Which jobs go now, and in what order. `spark/why.py` says the same in plain Python, for one group at a time.

Of a group, in the order of (sequence, created, id):

- IMMEDIATE goes as soon as it is due.
- NEXT_ON_ERROR goes up to `window` at a time. It passes a job that failed or waits for its retry. It does not pass one
  that is not due yet, nor a BLOCK_ON_ERROR job whose outcome is open: first attempts stay in order.
- BLOCK_ON_ERROR goes when nothing is left before it, not even a failed job, and no other job of its mode is out.

The epoch is a prefix, in that same order, of all that may go. So what it takes of a group is a prefix too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812

IMMEDIATE, NEXT, BLOCK = "IMMEDIATE", "NEXT_ON_ERROR", "BLOCK_ON_ERROR"
ORDER = ("sequence", "created_ms", "id")
_ROW_BITS = 33
"""Of `monotonically_increasing_id`: these low bits number the row in its partition, the bits above the partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much may go."""

    window: int
    """NEXT_ON_ERROR jobs of one group that are out at a time."""
    room: int | None
    """Jobs in this epoch; None: there is room for all."""
    shards: int
    pools: Mapping[str, int] = field(default_factory=dict)
    """How many jobs of each pool that has more than there is room for."""


def plan(jobs: DataFrame, *, limits: Limits) -> DataFrame:
    """`jobs` holds, of each group with a PENDING job, all that are not over, and the time now in `read_ms`.

    What is judged is exchanged once and sorted once: a job without a group is a group of its own, and all that a turn
    depends on is asked in one window. The time is a column, not a number in the plan: Spark would compile each plan
    with numbers of its own anew, and Java takes as long to make that fast as an epoch takes.
    """
    going = (
        jobs.transform(without_expired)
        .transform(with_state)
        .transform(lambda rows: by_shard(rows, limits.shards))
        .transform(with_what_stands_around)
        .transform(lambda rows: only_unheld(rows, limits.window))
    )
    if limits.pools:
        going = going.transform(lambda rows: within_pools(rows, limits.pools))
    if limits.room is not None:
        going = going.orderBy("rank", *ORDER).limit(limits.room)
    if limits.pools or limits.room is not None:
        going = going.repartitionById(limits.shards, "shard")
    return going.transform(as_claims)


def without_expired(jobs: DataFrame) -> DataFrame:
    expired = (F.col("status") == "PENDING") & (F.col("expires_ms") <= F.col("read_ms"))
    return jobs.filter(~F.coalesce(expired, F.lit(False)))


def with_state(jobs: DataFrame) -> DataFrame:
    """due, early (its first delivery comes later), retrying (it failed, and waits), out (published, no outcome yet)."""
    pending = F.col("status") == "PENDING"
    later = F.coalesce("scheduled_ms", F.lit(0)) > F.col("read_ms")
    return jobs.withColumns(
        {
            "due": pending & ~later,
            "early": pending & later & (F.col("tried") == 0),
            "retrying": pending & later & (F.col("tried") != 0),
            "out": F.col("status").isin("QUEUED", "IN_PROGRESS"),
        }
    )


def by_shard(jobs: DataFrame, shards: int) -> DataFrame:
    """A group's jobs are in one shard, so that one task publishes them, one after the other."""
    lane = F.crc32(F.coalesce("msg_group", "id").cast("binary"))
    return (
        jobs.withColumns({"lane": lane, "alone": F.when(F.col("msg_group").isNull(), F.col("id"))})
        .withColumns({"shard": F.pmod("lane", F.lit(shards)).cast("int"), "rank": _rank()})
        .repartitionById(shards, "shard")
    )


def with_what_stands_around(jobs: DataFrame) -> DataFrame:
    group = _group()
    before = group.rowsBetween(Window.unboundedPreceding, -1)
    up_to_here = group.rowsBetween(Window.unboundedPreceding, 0)
    whole = group.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    mode, out = F.col("mode"), F.col("out")
    tomorrows = F.col("early") & (mode == IMMEDIATE) & (F.col("attempt") == 1)
    # A due BLOCK_ON_ERROR job bars the way, unless an error that stands before it holds it.
    bars = F.when((F.col("status") == "ERROR") | F.col("retrying"), F.lit(False)).when(
        (mode == BLOCK) & F.col("due"), F.lit(True)
    )
    walls = F.max((F.col("early") & (mode != IMMEDIATE)) | (out & (mode == BLOCK)))
    return jobs.withColumns(
        {
            "wall_before": _or_not(walls.over(before)) | _or_not(F.first(bars, ignorenulls=True).over(before)),
            # An unordered job whose time has not come holds nothing back.
            "any_before": _or_not(F.max(~tomorrows).over(before)),
            "block_out": F.max(out & (mode == BLOCK)).over(whole),
            "next_out": F.sum((out & (mode == NEXT)).cast("int")).over(whole),
            # Walls only add up: if none stands before a job, none stands before the earlier ones of its mode either.
            "place": F.sum((F.col("due") & (mode == NEXT)).cast("int")).over(up_to_here),
        }
    )


def only_unheld(jobs: DataFrame, window: int) -> DataFrame:
    free = (
        F.when(F.col("mode") == IMMEDIATE, F.lit(True))
        .when(F.col("mode") == NEXT, ~F.col("wall_before") & (F.col("place") <= window - F.col("next_out")))
        .otherwise(~F.col("any_before") & ~F.col("block_out"))
    )
    return jobs.filter(F.col("due") & free)


def within_pools(jobs: DataFrame, most: Mapping[str, int]) -> DataFrame:
    """Keep each pool to its number. In a group, nothing goes behind a job that its pool has no room for."""
    first = F.row_number().over(Window.partitionBy("pool").orderBy("rank", *ORDER))
    limits = F.create_map(*(F.lit(word) for pool in most.items() for word in pool))
    before = _group().rowsBetween(Window.unboundedPreceding, -1)
    ordered = F.col("mode") != IMMEDIATE
    return (
        jobs.withColumn("left_out", _or_not(first > F.try_element_at(limits, "pool")))
        .withColumn("gap_before", _or_not(F.max(F.col("left_out") & ordered).over(before)))
        .filter(~F.col("left_out") & ~(ordered & F.col("gap_before")))
    )


def as_claims(jobs: DataFrame) -> DataFrame:
    """`jobs` are partitioned by shard: a row's place in its partition is its place in its shard."""
    place = F.monotonically_increasing_id().bitwiseAND((1 << _ROW_BITS) - 1) + 1
    return (
        jobs.sortWithinPartitions("rank", *ORDER)
        .withColumn("seq", place.cast("int"))
        .select("shard", "seq", F.col("id").alias("job_id"), "attempt", "msg_group", "mode", "pool")
    )


def _rank() -> Column:
    """One number that orders most jobs as ORDER does: Spark compares it in place, without looking at the rows.

    Exact for jobs created within 24 days of being read; farther away, ORDER alone decides.
    """
    since = F.col("created_ms") - (F.col("read_ms") - 2**31)
    return F.shiftleft(F.col("sequence").cast("long"), 32) + F.greatest(F.lit(0), F.least(since, F.lit(2**32 - 1)))


def _or_not(fact: Column) -> Column:
    """False for the first job of a group: nothing stands before it."""
    return F.coalesce(fact, F.lit(False))


def _group() -> WindowSpec:
    # A number first, which Spark compares in place. The shard is named so that Spark sees no need for another exchange.
    return Window.partitionBy("lane", "msg_group", "alone", "shard").orderBy(*ORDER)
