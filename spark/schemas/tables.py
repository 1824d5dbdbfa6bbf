"""Rows of the job store, as far as the pipeline reads them. Payloads are read only where they are copied."""

from __future__ import annotations

from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType


def _column(
    name: str, kind: StringType | LongType | IntegerType | DoubleType, *, nullable: bool = False
) -> StructField:
    return StructField(name, kind, nullable)


JOBS = StructType(
    [
        _column("id", StringType()),
        _column("msg_group", StringType(), nullable=True),
        _column("mode", StringType()),
        _column("status", StringType()),
        _column("sequence", IntegerType()),
        _column("created_ms", LongType()),
        _column("scheduled_ms", LongType(), nullable=True),
        _column("expires_ms", LongType(), nullable=True),
        _column("attempt", IntegerType()),
        _column("tried", IntegerType()),
    ]
)
"""What a plan decides by. `tried`: not 0 once its target has failed it; `attempt` also rises without a request."""

TO_PLAN = StructType([*JOBS.fields, _column("pool", StringType()), _column("read_ms", LongType())])
"""The same with the pool, and when it was read."""

UNDER_WAY = StructType(
    [
        *(field for field in JOBS.fields if field.name not in ("scheduled_ms", "expires_ms", "tried")),
        _column("queued_ms", LongType(), nullable=True),
        _column("claimed_until_ms", LongType(), nullable=True),
    ]
)
"""What recovery decides by."""

EVENTS = StructType(
    [
        _column("id", StringType()),
        _column("type", StringType()),
        _column("msg_group", StringType(), nullable=True),
        _column("payload", StringType()),
        _column("created_ms", LongType()),
    ]
)

SUBSCRIPTIONS = StructType(
    [
        _column("name", StringType()),
        _column("pattern", StringType()),
        _column("target_url", StringType()),
        _column("mode", StringType()),
        _column("pool", StringType()),
    ]
)

CLAIMS = StructType(
    [
        _column("shard", IntegerType()),
        _column("seq", IntegerType()),
        _column("job_id", StringType()),
        _column("attempt", IntegerType()),
        _column("msg_group", StringType(), nullable=True),
    ]
)
"""A plan: what goes, in which order within its shard."""

TO_PUBLISH = StructType([*CLAIMS.fields, _column("mode", StringType()), _column("pool", StringType())])
"""A claim, with what else its message says."""

PUBLISHED = StructType(
    [
        _column("sent", LongType()),
        _column("seen", LongType()),
        _column("refused_job", StringType(), nullable=True),
        _column("refused_attempt", IntegerType(), nullable=True),
        _column("trouble", StringType(), nullable=True),
    ]
)
"""What an executor says of a batch: how many it appended or found there, which job never can be sent, what failed."""

ATTEMPTS = StructType(
    [
        _column("id", StringType()),
        _column("attempt", IntegerType()),
        _column("started_ms", LongType()),
        _column("ended_ms", LongType()),
        _column("outcome", StringType()),
        _column("error", StringType(), nullable=True),
        _column("target_url", StringType()),
        _column("msg_group", StringType(), nullable=True),
        _column("pool", StringType()),
    ]
)
"""Deliveries of jobs, as the server recorded them; `id` is the job's."""

TOLD_JOBS = StructType(
    [
        *(field for field in JOBS.fields if field.name not in ("expires_ms", "attempt", "tried")),
        _column("pool", StringType()),
        _column("target_url", StringType()),
    ]
)
"""What a report reads of jobs."""

JOURNAL = StructType(
    [
        _column("kind", StringType(), nullable=True),
        _column("id", StringType(), nullable=True),
        _column("group", StringType(), nullable=True),
        _column("epoch", LongType(), nullable=True),
        _column("seq", LongType(), nullable=True),
        _column("status", IntegerType(), nullable=True),
        _column("t", DoubleType(), nullable=True),
        _column("journal", StringType(), nullable=True),
    ]
)
"""Records of `fleet/operate/journal.py`, and which file each is from."""
