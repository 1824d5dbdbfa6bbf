"""From claims to messages in the queue: what each executor does with its shard, batch by batch, in order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.pandas.types import to_arrow_schema

from fleet import failpoint
from fleet.errors import Fenced, FleetError
from spark import schemas
from spark.sources.send import BATCH, Destination, Row, Sender, Sent

FAILPOINT = "feed-publishing"
_FENCED = "fenced"
_SCHEMA = to_arrow_schema(schemas.PUBLISHED)


def publisher(to: Destination) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: rows of `TO_PUBLISH` in, a row of `PUBLISHED` a batch out.

    Not a data source's writer: what it has to say, counts, refusals, a lost lead, would not reach the driver.
    """

    def publish(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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

    return publish


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    # Column by column: a row at a time takes Arrow six times as long.
    return list(map(Row._make, zip(*(batch.column(name).to_pylist() for name in Row._fields), strict=True)))


def raise_trouble(trouble: str) -> None:
    if trouble == _FENCED:
        raise Fenced("another driver has taken over the feed")
    raise FleetError(trouble)


# What is said of it --------------------------------------------------------------------------------


def _told(done: Sent) -> list[dict[str, Any]]:
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
    # The driver is another process than this one; a place of its own it has none while it waits for us.
    signals = {"kill-driver": signal.SIGKILL, "stop-driver": signal.SIGSTOP}
    if (action := failpoint.hit(FAILPOINT)) in signals:
        os.kill(to.driver_pid, signals[action])
