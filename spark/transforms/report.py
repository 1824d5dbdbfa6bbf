"""What became of deliveries: attempts of the job store and journals, as one table, and what is counted in it.

A delivery is one request. It is a job's attempt as the server recorded it, or a request in an endpoint's journal. A job
that the store knows is counted by its attempts alone; a journal then only bears witness to the order.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

HOUR_MS = 3_600_000
SUCCESS = "SUCCESS"
FAILURES = ("ERROR_PROCESS", "ERROR_CONNECTION", "ERROR_CONFIG", "NOT_SENT", "FENCED")
"""Every other outcome of an attempt (`fleet/outcome.py`)."""
UNKNOWN = "unknown"
SHARES = (0.5, 0.95, 0.99)
_EXACT_BELOW = 10_000
"""A percentile of fewer values is exact. With more, it may be off by a ten-thousandth of them."""
_COLUMNS = (
    "id", "msg_group", "pool", "endpoint", "outcome", "error", "started_ms", "latency_ms", "first", "again",
    "wait_ms",
)  # fmt: skip


def deliveries_of(attempts: DataFrame, jobs: DataFrame) -> DataFrame:
    """`attempts` may be of jobs that are no longer in the store."""
    times = jobs.select("id", "created_ms", "scheduled_ms")
    return (
        attempts.join(times, "id", "left")
        .withColumn("endpoint", endpoint_of("target_url"))
        .withColumn("latency_ms", _no_less_than_0(F.col("ended_ms") - F.col("started_ms")))
        .transform(lambda rows: with_place_among_attempts(rows, "started_ms", "attempt"))
        .withColumn("wait_ms", F.when(F.col("first"), _since_due()))
        .select(*_COLUMNS)
    )


def deliveries_in(journal: DataFrame, jobs: DataFrame, attempts: DataFrame) -> DataFrame:
    """Requests in an endpoint's journal that belong to no job."""
    known = jobs.select("id").unionByName(attempts.select("id")).distinct()
    sent = journal.filter(F.col("kind") == "sent").groupBy("id").agg(F.min("t").alias("sent_t"))
    return (
        journal.transform(requests_of)
        .join(known, "id", "left_anti")
        .join(sent, "id", "left")
        .withColumn("pool", F.lit(UNKNOWN))
        .withColumn("endpoint", F.element_at(F.split("journal", "/"), -1))
        .withColumn("error", F.when(F.col("outcome") != SUCCESS, F.concat(F.lit("HTTP "), F.col("status"))))
        .transform(lambda rows: with_place_among_attempts(rows, "t"))
        .withColumn("wait_ms", F.when(F.col("first"), _no_less_than_0(F.col("t") - F.col("sent_t"))))
        .withColumn("started_ms", F.floor("t").cast("long"))
        .select(*_COLUMNS)
    )


def requests_of(journal: DataFrame) -> DataFrame:
    """Each end with the start that it belongs to. A request refused before it began has no start and no latency."""
    of_one = Window.partitionBy("journal", "id", "epoch").orderBy("t", F.col("kind").desc())
    own_start = F.when(F.lag("kind").over(of_one) == "start", F.lag("t").over(of_one))
    return (
        journal.filter(F.col("kind").isin("start", "end"))
        .withColumn("begun", own_start)
        .filter(F.col("kind") == "end")
        .select(
            "journal",
            "id",
            F.col("group").alias("msg_group"),
            "status",
            outcome_of_status("status").alias("outcome"),
            F.coalesce("begun", "t").alias("t"),
            _no_less_than_0(F.col("t") - F.col("begun")).alias("latency_ms"),
        )
    )


def with_place_among_attempts(rows: DataFrame, *time: str) -> DataFrame:
    """first: nothing with its id was sent before. again: delivered, though its id had been delivered before."""
    in_turn = Window.partitionBy("id").orderBy(*time, "outcome")
    before = in_turn.rowsBetween(Window.unboundedPreceding, -1)
    delivered = F.col("outcome") == SUCCESS
    return rows.withColumns(
        {
            "first": F.row_number().over(in_turn) == 1,
            "again": delivered & F.coalesce(F.max(delivered).over(before), F.lit(False)),
        }
    )


def endpoint_of(url: str) -> Column:
    """The address without what may be secret or differs each time: user, password, query, fragment."""
    return F.regexp_replace(F.regexp_replace(url, r"[?#].*$", ""), r"^([A-Za-z]+://)[^/]*@", "$1")


def outcome_of_status(status: str) -> Column:
    code = F.col(status)
    return (
        F.when(code.between(200, 299), SUCCESS)
        .when(code == 412, "FENCED")
        .when(code.between(400, 499) & (code != 429), "ERROR_CONFIG")
        .otherwise("ERROR_PROCESS")
    )


def _since_due() -> Column:
    """Since when it could have gone. A `scheduled_ms` later than the first attempt is that of a retry."""
    due = F.when(F.col("scheduled_ms") <= F.col("started_ms"), F.greatest("scheduled_ms", "created_ms"))
    return _no_less_than_0(F.col("started_ms") - F.coalesce(due, "created_ms"))


def _no_less_than_0(ms: Column) -> Column:
    """Clocks of two machines differ. What is not known stays unknown: `greatest` alone would make it 0."""
    return F.when(ms.isNotNull(), F.greatest(ms.cast("double"), F.lit(0.0)))


def since(deliveries: DataFrame, since_ms: int) -> DataFrame:
    return deliveries.filter(F.col("started_ms") >= since_ms)


def with_order(deliveries: DataFrame, inversions: DataFrame) -> DataFrame:
    """Marks the first delivery of everything that came out of order."""
    late = inversions.select("id").distinct().withColumn("late", F.lit(True))
    joined = deliveries.join(late, "id", "left")
    return joined.withColumn("late", F.col("first") & F.coalesce("late", F.lit(False)))


# What is counted -----------------------------------------------------------------------------------


def measured(deliveries: DataFrame, *keys: str) -> DataFrame:
    """One row for each combination of keys that occurs. Without keys one row, even if there are no deliveries."""
    delivered = F.col("outcome") == SUCCESS
    latency = F.percentile_approx("latency_ms", list(SHARES), _EXACT_BELOW)
    wait = F.percentile_approx("wait_ms", list(SHARES), _EXACT_BELOW)
    counted = deliveries.groupBy(*keys).agg(
        F.count("*").alias("attempts"),
        F.count_if(delivered).alias("delivered"),
        F.count_if(~delivered).alias("failed"),
        *(F.count_if(F.col("outcome") == name).alias(name.lower()) for name in FAILURES),
        F.count_if(~F.col("first")).alias("retried"),
        F.count_if("again").alias("duplicates"),
        F.count_if("late").alias("out_of_order"),
        latency.alias("latency"),
        wait.alias("wait"),
        F.mode("error", True).alias("most_frequent_error"),
        F.min("started_ms").alias("from_ms"),
        F.max("started_ms").alias("to_ms"),
    )
    return counted.select(
        *(column for column in counted.columns if column not in ("latency", "wait")),
        *_spread("latency", "p{}_ms"),
        *_spread("wait", "wait_p{}_ms"),
    )


def _spread(column: str, name: str) -> list[Column]:
    return [F.get(column, place).alias(name.format(round(share * 100))) for place, share in enumerate(SHARES)]


def by_hour(deliveries: DataFrame) -> DataFrame:
    """The finest table: endpoint, pool, group and hour."""
    hour = F.timestamp_millis(F.col("started_ms") - F.pmod("started_ms", F.lit(HOUR_MS)))
    return measured(deliveries.withColumn("hour", hour), "hour", "endpoint", "pool", "msg_group")


def over_time(deliveries: DataFrame, step_ms: int) -> DataFrame:
    bucket = F.col("started_ms") - F.pmod("started_ms", F.lit(step_ms))
    return measured(deliveries.withColumn("bucket_ms", bucket), "bucket_ms").orderBy("bucket_ms")


def by_tries(deliveries: DataFrame) -> DataFrame:
    """How many needed one attempt, two, and so on; and how many of them were delivered in the end."""
    each = deliveries.groupBy("id").agg(
        F.count("*").alias("tries"), F.max(F.col("outcome") == SUCCESS).alias("delivered")
    )
    return each.groupBy("tries").agg(F.count("*").alias("messages"), F.count_if("delivered").alias("delivered"))


def by_status(jobs: DataFrame) -> DataFrame:
    return jobs.groupBy("status").agg(F.count("*").alias("jobs"))
