"""The report: attempts and journals → tables, plots and a page."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from sqlalchemy import Engine, func, select

from fleet.config.settings import Settings
from fleet.errors import FleetError
from fleet.jobs.database import reading
from fleet.jobs.schema import dispatch_attempts, dispatch_jobs
from fleet.jobs.store import open_store
from spark.report.findings import NOTHING, STEPS_MS, Findings, step_for
from spark.report.page import write_page
from spark.report.plots import draw
from spark.session import Spark
from spark.sources import store
from spark.sources.journals import journals
from spark.steps.setup import spark_errors
from spark.transforms import order
from spark.transforms import report as transforms

PAGE, TABLES, PLOTS = "report.html", "tables", "plots"
INVERSIONS_SHOWN = 1000
_OURS = ("hours", "endpoints", "pools", "timeline", "tries", "out_of_order")
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    out: Path
    since_ms: int
    journals: Sequence[Path]
    master: str


def report(settings: Settings, wanted: Wanted, *, say: Say, spark: Spark | None = None) -> Findings:
    """Write everything to `out`, and return what it says. `spark`: one that is open already, and stays open."""
    # Before anything takes seconds: the path may not be a folder, or not one we may write to.
    tables, plots = _folder(wanted.out / TABLES), _folder(wanted.out / PLOTS)
    for name in _OURS:
        _remove(tables / f"{name}.parquet")
    opened = open_store(settings, connections=1)
    try:
        if wanted.journals or _has_attempts(opened.engine, wanted.since_ms):
            say("Starting Spark")
            used = spark or Spark(master=wanted.master, shards=settings.feed.shards, name="fleet-report")
            try:
                with spark_errors():
                    findings = _Report(used, opened.engine, wanted, tables).findings(say)
            finally:
                if spark is None:
                    used.close()
        else:
            findings = nothing(opened.engine, wanted)
    finally:
        opened.close()
    say("Drawing")
    drawn = draw(findings, plots)
    write_page(findings, drawn, wanted.out / PAGE)
    return findings


class _Report:
    def __init__(self, spark: Spark, engine: Engine, wanted: Wanted, tables: Path) -> None:
        self._spark = spark
        self._url = engine.url.render_as_string(hide_password=False)
        self._wanted = wanted
        self._tables = tables

    def findings(self, say: Say) -> Findings:
        wanted = self._wanted
        attempts, jobs = self._ask("told_attempts").cache(), self._ask("told_jobs").cache()
        written = journals(self._spark.session, wanted.journals).cache()
        say("Reading attempts" + (f" and {len(wanted.journals)} journals" if wanted.journals else ""))
        seen = [order.seen_by_server(attempts, jobs)]
        if wanted.journals:
            seen += [order.seen_by_endpoints(written, jobs), order.seen_by_producers(written)]
        judged = order.judged(reduce(DataFrame.unionByName, seen), wanted.since_ms).cache()
        inversions = order.out_of_order(judged).cache()
        deliveries = transforms.deliveries_of(attempts, jobs)
        if wanted.journals:
            deliveries = deliveries.unionByName(transforms.deliveries_in(written, jobs, attempts))
        deliveries = transforms.with_order(transforms.since(deliveries, wanted.since_ms), inversions).cache()
        (summary,) = self._rows(transforms.measured(deliveries))
        say(f"{summary['attempts']:,} attempts: measuring")
        step_ms = step_for(summary["from_ms"], summary["to_ms"])
        found = Findings(
            summary=summary,
            endpoints=self._kept("endpoints", transforms.measured(deliveries, "endpoint")),
            pools=self._kept("pools", transforms.measured(deliveries, "pool")),
            timeline=self._kept("timeline", transforms.over_time(deliveries, step_ms)),
            step_ms=step_ms,
            tries=self._kept("tries", transforms.by_tries(deliveries).orderBy("tries")),
            statuses={row["status"]: row["jobs"] for row in self._rows(transforms.by_status(jobs))},
            judged=self._rows(order.judged_counts(judged)),
            inversions=self._kept("out_of_order", inversions.orderBy("first_ms", "id").limit(INVERSIONS_SHOWN)),
            inverted=inversions.select("id").distinct().count(),
            generated_ms=_now_ms(),
            since_ms=wanted.since_ms,
            sources=sources(wanted),
        )
        say("Writing the tables")
        # Written by the executors: of all the tables, this one alone grows with the number of groups.
        transforms.by_hour(deliveries).write.mode("overwrite").parquet(
            (self._tables / "hours.parquet").absolute().as_uri()
        )
        return found

    def _ask(self, question: str) -> DataFrame:
        return store.ask(self._spark.session, self._url, question, since_ms=self._wanted.since_ms)

    def _kept(self, name: str, table: DataFrame) -> list[dict[str, Any]]:
        """The table's rows, which are written to the folder too."""
        rows = table.toArrow()
        pq.write_table(rows, self._tables / f"{name}.parquet")
        return _listed(rows)

    def _rows(self, table: DataFrame) -> list[dict[str, Any]]:
        return _listed(table.toArrow())


def _listed(rows: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


def nothing(engine: Engine, wanted: Wanted) -> Findings:
    """Without Spark, which would take seconds to count to zero."""
    question = select(dispatch_jobs.c.status, func.count()).group_by(dispatch_jobs.c.status)
    if wanted.since_ms:
        question = question.where(dispatch_jobs.c.created_ms >= wanted.since_ms)
    with reading(engine) as connection:
        statuses = {row[0]: int(row[1]) for row in connection.execute(question)}
    return Findings(
        summary=NOTHING, step_ms=STEPS_MS[0], statuses=statuses, generated_ms=_now_ms(), since_ms=wanted.since_ms,
        sources=sources(wanted),
    )  # fmt: skip


def sources(wanted: Wanted) -> str:
    names = ", ".join(path.name for path in wanted.journals)
    return f"the job store and {names}" if names else "the job store"


def _has_attempts(engine: Engine, since_ms: int) -> bool:
    question = select(dispatch_attempts.c.job_id).where(dispatch_attempts.c.started_ms >= since_ms).limit(1)
    with reading(engine) as connection:
        return connection.execute(question).first() is not None


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise FleetError(f"cannot write to {path}: {error.strerror}") from error
    return path


def _remove(table: Path) -> None:
    """What an earlier report wrote says nothing about this one."""
    if table.is_dir():
        shutil.rmtree(table)
    else:
        table.unlink(missing_ok=True)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
