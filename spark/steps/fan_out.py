"""Events → jobs. A batch of events is taken, read, made into jobs, and let go; a crash anywhere leaves it taken.

The next leader takes what was left behind together with what is new. Jobs that are there already stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from sqlalchemy import Engine, and_, select, update

from fleet.jobs.database import open_engine, parse_url, reading, reading_in_parts, writing
from fleet.jobs.schema import TO_FAN_OUT, dispatch_jobs, events
from fleet.words import number
from spark import schemas
from spark.sources.copy import insert_new_rows, select_rows
from spark.sources.queries import past_events
from spark.steps.setup import Setup, spark_errors
from spark.transforms.fan_out import jobs_of

BATCH = 20_000
_EVENTS = to_arrow_schema(schemas.EVENTS)
_NEW, _DONE = 0, 1


def fan_out(setup: Setup, *, most: int = BATCH) -> tuple[int, int]:
    """One batch: (events, jobs that were new). (0, 0) when there are none."""
    batch = _token(setup.lead.fence)
    taken = setup.attend(lambda: take(setup.engine, batch, most))
    if not taken:
        return 0, 0
    made = setup.attend(
        lambda: _insert(setup, jobs_of(setup.ask("events_of_batch", batch=batch), setup.ask("subscriptions")))
    )
    # Asked again: a driver that was replaced meanwhile must let nothing go, its successor has taken the batch over.
    same = _token(setup.lead.fence)
    setup.attend(lambda: release(setup.engine, same))
    return taken, made


def waiting(engine: Engine) -> bool:
    with reading(engine) as connection:
        return connection.execute(select(events.c.id).where(TO_FAN_OUT).limit(1)).first() is not None


def take(engine: Engine, batch: int, most: int) -> int:
    event = events.c
    left_behind = event.fanned_out < _NEW
    oldest = select(event.id).where(TO_FAN_OUT, event.fanned_out == _NEW).order_by(event.created_ms, event.id)
    # Two statements: for one with both conditions, PostgreSQL reads all events there are.
    with writing(engine) as connection:
        return sum(
            connection.execute(update(events).where(whose).values(fanned_out=batch)).rowcount
            for whose in (and_(TO_FAN_OUT, left_behind), event.id.in_(oldest.limit(most).scalar_subquery()))
        )


def release(engine: Engine, batch: int) -> None:
    with writing(engine) as connection:
        connection.execute(update(events).where(TO_FAN_OUT, events.c.fanned_out == batch).values(fanned_out=_DONE))


def look_back(setup: Setup, subscription: str, *, since_ms: int, show: Callable[[str], None]) -> int:
    """Make a subscription's jobs of events that came before it; returns how many were new. Idempotent.

    The oldest first, some thousand a transaction: if the driver is lost, what it did not reach is behind all it made.
    """

    def made() -> int:
        asking = setup.ask("subscriptions").filter(F.col("name") == subscription)
        looked_at = new = 0
        with reading_in_parts(setup.engine) as connection:
            for part in select_rows(connection, past_events(since_ms=since_ms), _EVENTS):
                past = setup.spark.session.createDataFrame(pa.Table.from_batches([part]))
                new += _insert(setup, jobs_of(past, asking).coalesce(1))
                looked_at += part.num_rows
                show(f"{number(looked_at, 'past event')} looked at, {number(new, 'new job')}")
        return new

    return setup.attend(made)


def _insert(setup: Setup, jobs: DataFrame) -> int:
    url = setup.engine.url.render_as_string(hide_password=False)
    with spark_errors():
        return sum(row.made for row in jobs.mapInArrow(_inserter(url), "made long").collect())


def _token(fence: int) -> int:
    """Marks what one driver took: a driver lets go only what bears its own mark."""
    return -(fence % (2**31 - 2) + 1)


def _inserter(url: str) -> Any:
    def insert(batches: Iterator[Any]) -> Iterator[Any]:
        engine = open_engine(parse_url(url), connections=1)
        try:
            for batch in batches:
                with writing(engine) as connection:
                    made = insert_new_rows(connection, dispatch_jobs, _as_jobs(pa.Table.from_batches([batch])))
                yield pa.RecordBatch.from_pydict({"made": [made]})
        finally:
            engine.dispose()

    return insert


def _as_jobs(rows: pa.Table) -> pa.Table:
    return rows.append_column("source", pa.repeat("fan-out", len(rows))).append_column(
        "kind", pa.repeat("EVENT", len(rows))
    )
