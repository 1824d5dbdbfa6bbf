"""What a step of the feed works with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from sqlalchemy import Engine

from fleet.config.settings import FeedSettings
from fleet.errors import FleetError, SparkGone
from spark.lead import Lead
from spark.session import Spark
from spark.sources import store
from spark.sources.ledger import Ledger
from spark.sources.send import Destination
from spark.words import in_a_line

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Setup:
    spark: Spark
    engine: Engine
    lead: Lead
    feed: FeedSettings
    to: Destination
    """Without the fence, which the lead knows."""
    now_ms: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.engine)

    def attend(self, work: Callable[[], T]) -> T:
        """Do what may take long, and keep the lead meanwhile."""
        try:
            return self.lead.attend(work, progress=self._progress)
        except SparkGone:
            raise
        except FleetError:
            with spark_errors():
                self.spark.cancel()
            raise

    def _progress(self) -> object:
        with spark_errors():
            return self.spark.progress()

    def ask(self, question: str, *, shards: tuple[int, ...] = (), **asked: int) -> DataFrame:
        url = self.engine.url.render_as_string(hide_password=False)
        with spark_errors():
            return store.ask(self.spark.session, url, question, shards=shards, **asked)


@contextmanager
def spark_errors() -> Iterator[None]:
    """Spark's own errors in one line each; the details are in Spark's log."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        said = in_a_line(str(error))
        if "stopped SparkContext" in said or "SparkContext was shut down" in said:
            raise SparkGone from error
        raise FleetError(f"Spark: {said}") from error
    except (Py4JError, ConnectionError, EOFError) as error:
        # Java said nothing of this: it does not answer.
        raise SparkGone from error
