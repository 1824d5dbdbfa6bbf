"""Was the order of each group kept? The witnesses are the server's attempts and the journals of endpoints and senders.

- A NEXT_ON_ERROR job's first attempt comes before that of every NEXT_ON_ERROR job behind it.
- All attempts of a job come before the first one of a BLOCK_ON_ERROR job behind it. (Not the other way round: an error
  may hold a BLOCK_ON_ERROR job while the others go past it.)
- A message that a producer's journal says was sent before another of its group is accepted before it.

A job that was added after one behind it had already gone has missed its place, and is not judged.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark.transforms.plan import BLOCK, IMMEDIATE, NEXT, ORDER
from spark.transforms.report import requests_of

ATTEMPTS = "the server's attempts"
ENDPOINTS = "the endpoints' journals"
PRODUCERS = "journals of senders and endpoints"
_COLUMNS = (
    "witness", "lane", "msg_group", "id", "mode", "cast(sequence as long)", "created_ms",
    "cast(first_ms as double)", "cast(last_ms as double)",
)  # fmt: skip


def seen_by_server(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    times = attempts.groupBy("id").agg(F.min("started_ms").alias("first_ms"), F.max("started_ms").alias("last_ms"))
    return _of_jobs(times, jobs, ATTEMPTS)


def seen_by_endpoints(journal: DataFrame, jobs: DataFrame) -> DataFrame:
    times = (
        journal.filter(F.col("kind") == "start")
        .groupBy("id")
        .agg(F.min("t").alias("first_ms"), F.max("t").alias("last_ms"))
    )
    return _of_jobs(times, jobs, ENDPOINTS)


def _of_jobs(times: DataFrame, jobs: DataFrame, witness: str) -> DataFrame:
    return (
        jobs.filter(F.col("msg_group").isNotNull() & (F.col("mode") != IMMEDIATE))
        .join(times, "id")
        .withColumns({"witness": F.lit(witness), "lane": F.col("msg_group")})
        .selectExpr(*_COLUMNS)
    )


def seen_by_producers(journal: DataFrame) -> DataFrame:
    """First acceptances, in the order of sending. Two producers have no common order: each is judged by itself."""
    accepted = (
        requests_of(journal)
        .filter(F.col("outcome") == "SUCCESS")
        .withColumn("accepted_ms", F.col("t") + F.coalesce("latency_ms", F.lit(0.0)))
        .groupBy("id")
        .agg(F.min("accepted_ms").alias("first_ms"))
    )
    sent = (
        journal.filter((F.col("kind") == "sent") & F.col("group").isNotNull())
        .groupBy("id")
        .agg(F.min(F.struct("journal", "group", "seq")).alias("sent"))
        .select("id", "sent.*")
    )
    return (
        sent.join(accepted, "id")
        .withColumns(
            {
                "witness": F.lit(PRODUCERS),
                "lane": F.concat_ws("\0", "journal", "group"),
                "msg_group": F.col("group"),
                "mode": F.lit(NEXT),
                "sequence": F.col("seq"),
                "created_ms": F.lit(0).cast("long"),
                "last_ms": F.col("first_ms"),
            }
        )
        .selectExpr(*_COLUMNS)
    )


def judged(seen: DataFrame, since_ms: int) -> DataFrame:
    """Leave out what began before the period: the report does not cover its first attempts."""
    return seen.filter(F.col("first_ms") >= since_ms)


def out_of_order(seen: DataFrame) -> DataFrame:
    """What was overtaken by something behind it, and what overtook it first."""
    behind = (
        Window.partitionBy("witness", "lane")
        .orderBy(*ORDER)
        .rowsBetween(Window.currentRow + 1, Window.unboundedFollowing)
    )
    mode = F.col("mode")
    marked = seen.withColumns(
        {
            "next": F.min(F.when(mode == NEXT, F.struct("first_ms", "id"))).over(behind),
            "block": F.min(F.when(mode == BLOCK, F.struct("first_ms", "id"))).over(behind),
        }
    )
    created = F.col("created_ms")
    by_next = (mode == NEXT) & (F.col("next.first_ms") >= created) & (F.col("next.first_ms") < F.col("first_ms"))
    by_block = (F.col("block.first_ms") >= created) & (F.col("block.first_ms") < F.col("last_ms"))
    overtaken_by = F.coalesce(F.when(by_next, F.col("next.id")), F.when(by_block, F.col("block.id")))
    return (
        marked.withColumn("overtaken_by", overtaken_by)
        .filter(F.col("overtaken_by").isNotNull())
        .select("witness", "msg_group", "id", "mode", "overtaken_by", "first_ms")
    )


def judged_counts(seen: DataFrame) -> DataFrame:
    """For each witness: how many messages it says something about, in how many groups."""
    return seen.groupBy("witness").agg(F.count("*").alias("judged"), F.count_distinct("lane").alias("groups"))
