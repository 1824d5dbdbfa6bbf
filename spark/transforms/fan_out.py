"""Events × subscriptions → jobs. The same event and subscription make the same job, however often they are seen."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from fleet.jobs.rising import LONGEST_EVENT_ID

SEPARATOR = ":"
ANY = "*"


def jobs_of(events: DataFrame, subscriptions: DataFrame) -> DataFrame:
    """One row for each event and each subscription whose pattern its type matches."""
    heard = events.select("*", F.split("type", SEPARATOR).alias("said"))
    asking = subscriptions.select("*", F.split("pattern", SEPARATOR).alias("wanted"))
    # The number of segments can be hashed. Only the few patterns with as many are then compared.
    as_long = F.size("said") == F.size("wanted")
    return (
        heard.join(F.broadcast(asking), as_long & _each_segment_fits())
        .select(
            _job_id().alias("id"),
            F.col("id").alias("event_id"),
            F.col("name").alias("subscription"),
            F.col("type").alias("code"),
            "target_url",
            "payload",
            "mode",
            "pool",
            F.concat_ws(SEPARATOR, "name", "msg_group").alias("joined_group"),
            "msg_group",
            "created_ms",
        )
        .transform(_with_group)
    )


def _with_group(jobs: DataFrame) -> DataFrame:
    group = F.when(F.col("msg_group").isNotNull(), F.col("joined_group"))
    return jobs.withColumn("msg_group", group).drop("joined_group")


def _each_segment_fits() -> Column:
    def fits(wanted: Column, said: Column) -> Column:
        return (wanted == ANY) | (wanted == said)

    return F.forall(F.zip_with("wanted", "said", fits), lambda fit: fit)


def _job_id() -> Column:
    """The event's id first: events of one millisecond keep their order as jobs of one group (`begins_its_jobs`)."""
    digest = F.sha2(F.concat_ws("\0", "id", "name"), 256)
    return F.when(F.length("id") <= LONGEST_EVENT_ID, F.concat_ws(".", "id", F.left(digest, F.lit(16)))).otherwise(
        digest
    )
