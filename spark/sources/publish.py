"""From claims to messages in the queue: what each executor does with its shard, batch by batch, in order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import accumulate
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from fleet import failpoint
from fleet.errors import Fenced, FleetError, SparkGone
from fleet.sources.own.address import is_own
from spark import schemas
from spark.sources.send import BATCH, Destination, Row, Sender, ShardSent

FAILPOINT = "feed-publishing"
_FENCED = "fenced"
_AT_ONCE = 10_000
_OWN_ROUND, _ROUND = 100_000, 5_000
"""Jobs of a shard in one task: our own queue takes 100,000 in a second or two, SQS 5,000 in half a minute."""
_SCHEMA = to_arrow_schema(schemas.PUBLISHED)


def batch_publisher(to: Destination) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does: rows of `TO_PUBLISH` in, rows of `PUBLISHED` out, batch by batch.

    Not a data source's writer: what this has to say (counts, refusals, a lost lead) would not reach the driver.
    """

    def publish_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if to.failpoint.startswith(FAILPOINT + ":"):
            failpoint.arm(to.failpoint)
        with asyncio.Runner() as runner:
            sender = Sender(to)
            try:
                runner.run(sender.open())
                for batch in batches:
                    rows, said = rows_of(batch), []
                    for first in range(0, len(rows), BATCH):
                        said += _told(runner.run(sender.send(rows[first : first + BATCH])))
                        _pass_failpoint(to)
                    yield _answer(said)
            except Fenced:
                yield _answer([_said(trouble=_FENCED)])
            except FleetError as error:
                yield _answer([_said(trouble=str(error))])
            finally:
                with suppress(FleetError):
                    runner.run(sender.close())

    return publish_batches


def publish_claims(
    session: SparkSession, claims: pa.Table, to: Destination, *, go_on: Callable[[], bool]
) -> list[SparkRow]:
    """Publish claims that the driver has in memory (`TO_PUBLISH`), one task a shard. Returns rows of `PUBLISHED`.

    Trouble other than a refusal is raised. A shard goes to its executor as an Arrow stream: as a table of Spark's it
    would be taken apart, exchanged and sorted again, which took twice as long as sending it.
    """
    publish_batches = batch_publisher(to)

    def publish_shard(streams: Iterable[bytes]) -> Iterator[SparkRow]:
        for stream in streams:
            for said in publish_batches(pa.ipc.open_stream(stream)):
                yield from (SparkRow(**row) for row in said.to_pylist())

    said: list[SparkRow] = []
    for parts in _rounds(claims, _OWN_ROUND if is_own(to.uri) else _ROUND):
        if not go_on():
            # Our own queue would refuse us once another driver has begun; other queues know no drivers.
            _raise(_FENCED)
        streams = [_as_stream(part) for part in parts]
        told = session.sparkContext.parallelize(streams, len(streams)).mapPartitions(publish_shard).collect()
        # Before the next round: nothing may be published behind what was not published.
        for row in told:
            if row.trouble is not None and row.refused_job is None:
                _raise(row.trouble)
        if sum(row.sent + row.seen + (row.refused_job is not None) for row in told) != sum(map(len, parts)):
            # PySpark takes a connection that breaks for the end of the answer.
            raise SparkGone
        said += told
    return said


def _rounds(claims: pa.Table, most: int) -> Iterator[list[pa.Table]]:
    """`most` of each shard at a time: by tasks that end, a driver sees that its epoch gets on."""
    if not len(claims):
        return
    in_order = claims.sort_by([("shard", "ascending"), ("seq", "ascending")])
    sizes = pc.value_counts(in_order.column("shard")).field("counts").to_pylist()
    ends = list(accumulate(sizes))
    shards = [in_order.slice(end - size, size) for size, end in zip(sizes, ends, strict=True)]
    for first in range(0, max(sizes), most):
        yield [shard.slice(first, most) for shard in shards if len(shard) > first]


def _as_stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows, max_chunksize=_AT_ONCE)
    return bytes(sink.getvalue())


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    # Column by column: a row at a time takes Arrow six times as long.
    return list(map(Row._make, zip(*(batch.column(name).to_pylist() for name in Row._fields), strict=True)))


def _raise(trouble: str) -> None:
    if trouble == _FENCED:
        raise Fenced("another driver has taken over the feed")
    raise FleetError(trouble)


# What is said of it --------------------------------------------------------------------------------


def _told(done: ShardSent) -> list[dict[str, Any]]:
    said = [_said(refused=row, trouble=reason) for row, reason in done.refused]
    return [*said, _said(sent=done.sent, seen=done.seen)]


def _said(*, sent: int = 0, seen: int = 0, refused: Row | None = None, trouble: str | None = None) -> dict[str, Any]:
    return {
        "sent": sent,
        "seen": seen,
        "refused_job": refused.job_id if refused else None,
        "refused_attempt": refused.attempt if refused else None,
        "trouble": trouble,
    }


def _answer(said: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(said, schema=_SCHEMA)


def _pass_failpoint(to: Destination) -> None:
    # The driver is another process, and passes no failpoint of its own while it waits for us.
    signals = {"kill-driver": signal.SIGKILL, "stop-driver": signal.SIGSTOP}
    if (action := failpoint.hit(FAILPOINT)) in signals:
        os.kill(to.driver_pid, signals[action])
