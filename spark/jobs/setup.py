"""What a step of the feed works with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from sqlalchemy import Engine

from fleet.errors import FleetError
from fleet.settings import FeedSettings
from spark.line import Line
from spark.session import Spark
from spark.sources import store
from spark.sources.ledger import Ledger
from spark.sources.send import Destination


@dataclass(frozen=True, kw_only=True)
class Setup:
    spark: Spark
    engine: Engine
    line: Line
    feed: FeedSettings
    to: Destination
    """Without the fence, which the line knows."""
    now_ms: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.engine)

    def ask(self, question: str, *, shards: tuple[int, ...] = (), **asked: int) -> DataFrame:
        url = self.engine.url.render_as_string(hide_password=False)
        return store.ask(self.spark.session, url, question, shards=shards, **asked)


@contextmanager
def spark_errors() -> Iterator[None]:
    """Spark's own in one line; what lies below, in the log of Spark."""
    try:
        yield
    except PySparkException as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        told = [line for line in lines if line.startswith(("fleet.errors.", "sqlalchemy.", "psycopg."))]
        raise FleetError(f"Spark: {(told or lines or [type(error).__name__])[-1 if told else 0][:500]}") from error
