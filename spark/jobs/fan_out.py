"""Events → jobs. A batch of events is taken, read, made into jobs, and let go; a crash anywhere leaves it taken.

Whoever leads next takes what was left behind together with what is new. Jobs that are there already stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from sqlalchemy import Engine, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from fleet.jobs.database import open_engine, parse_url, reading, writing
from fleet.jobs.schema import dispatch_jobs, events
from spark.jobs.setup import Setup, spark_errors
from spark.transforms.fan_out import jobs_of

BATCH = 20_000
_NEW, _DONE = 0, 1
_ROWS = 500


def fan_out(setup: Setup, *, most: int = BATCH) -> tuple[int, int]:
    """One batch: (events, jobs that were new). (0, 0) when there are none."""
    batch = _token(setup.line.fence)
    taken = take(setup.engine, batch, most)
    if not taken:
        return 0, 0
    made = setup.attend(
        lambda: _insert(setup, jobs_of(setup.ask("events_of_batch", batch=batch), setup.ask("subscriptions")))
    )
    # Asked again: a driver that was replaced in the meantime lets nothing go, its successor has taken it over.
    release(setup.engine, _token(setup.line.fence))
    return taken, made


def waiting(engine: Engine) -> bool:
    with reading(engine) as connection:
        return connection.execute(select(events.c.id).where(events.c.fanned_out <= _NEW).limit(1)).first() is not None


def take(engine: Engine, batch: int, most: int) -> int:
    oldest = select(events.c.id).where(events.c.fanned_out == _NEW).order_by(events.c.created_ms, events.c.id)
    whose = or_(events.c.fanned_out < _NEW, events.c.id.in_(oldest.limit(most).scalar_subquery()))
    with writing(engine) as connection:
        return connection.execute(update(events).where(whose).values(fanned_out=batch)).rowcount


def release(engine: Engine, batch: int) -> None:
    with writing(engine) as connection:
        connection.execute(update(events).where(events.c.fanned_out == batch).values(fanned_out=_DONE))


def look_back(setup: Setup, subscription: str, *, since_ms: int) -> int:
    """Jobs for one subscription, of events that came before it: how many were new. Done again, it changes nothing."""

    def made() -> int:
        asking = setup.ask("subscriptions").filter(F.col("name") == subscription)
        return _insert(setup, jobs_of(setup.ask("past_events", since_ms=since_ms), asking))

    return setup.attend(made)


def _insert(setup: Setup, jobs: DataFrame) -> int:
    url = setup.engine.url.render_as_string(hide_password=False)
    with spark_errors():
        return sum(row.made for row in jobs.mapInArrow(_inserter(url), "made long").collect())


def _token(fence: int) -> int:
    """Of one driver: what an older one took is not what it lets go."""
    return -(fence % (2**31 - 2) + 1)


def _inserter(url: str) -> Any:
    def insert(batches: Iterator[Any]) -> Iterator[Any]:
        engine = open_engine(parse_url(url), connections=1)
        try:
            for batch in batches:
                rows = [_row(row) for row in batch.to_pylist()]
                made = sum(_insert_new(engine, rows[first : first + _ROWS]) for first in range(0, len(rows), _ROWS))
                yield pa.RecordBatch.from_pydict({"made": [made]})
        finally:
            engine.dispose()

    return insert


def _row(row: dict[str, Any]) -> dict[str, Any]:
    group = row.pop("message_group")
    return {**row, "msg_group": group, "source": "fan-out", "kind": "EVENT"}


def _insert_new(engine: Engine, rows: list[dict[str, Any]]) -> int:
    kind = postgresql if engine.dialect.name == "postgresql" else sqlite
    statement = kind.insert(dispatch_jobs).on_conflict_do_nothing().returning(dispatch_jobs.c.id)
    with writing(engine) as connection:
        return len(connection.execute(statement, rows).all())
