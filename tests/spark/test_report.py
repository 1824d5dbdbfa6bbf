"""The report's tables: Spark's and the plain-Python ones are the same, and both count what happened."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.testing import assertDataFrameEqual

from fleet.jobs.records import MODES
from fleet.operate.journal import Journal
from spark import schemas
from spark.sources.journals import journals
from spark.transforms import order, report

OUTCOMES = ("SUCCESS", "SUCCESS", *report.FAILURES)
HOUR = report.HOUR_MS
IDS = ("a1", "a2", "b", "é")
"""Few: what is worth a test is what becomes of one with several attempts."""


@dataclasses.dataclass(frozen=True)
class Made:
    """One attempt, with what the store knows of its job."""

    id: str
    attempt: int
    started_ms: int
    took_ms: int
    outcome: str
    group: str | None
    endpoint: str

    @property
    def ended_ms(self) -> int:
        return self.started_ms + self.took_ms


@dataclasses.dataclass(frozen=True)
class MadeJob:
    id: str
    group: str | None
    mode: str
    sequence: int
    created_ms: int
    scheduled_ms: int | None = None


jobs_made = st.builds(
    MadeJob,
    id=st.sampled_from(IDS),
    group=st.sampled_from([None, "g", "g", "g", "h"]),
    mode=st.sampled_from(MODES),
    sequence=st.sampled_from([1, 99, 99]),
    created_ms=st.integers(0, 3),
    scheduled_ms=st.sampled_from([None, None, 3, 8, HOUR]),
)
attempts_made = st.builds(
    Made,
    id=st.sampled_from([*IDS, "gone"]),
    attempt=st.integers(1, 4),
    started_ms=st.one_of(st.integers(0, 12), st.integers(HOUR - 3, HOUR + 3)),
    took_ms=st.integers(0, 50),
    outcome=st.sampled_from(OUTCOMES),
    group=st.sampled_from([None, "g", "h"]),
    endpoint=st.sampled_from(["http://a/x", "http://b"]),
)
tables = st.tuples(
    st.lists(attempts_made, min_size=3, max_size=20, unique_by=lambda one: (one.id, one.started_ms)),
    st.lists(jobs_made, min_size=2, max_size=4, unique_by=lambda one: one.id),
)


AGAIN = (
    [
        Made("a1", place, place, 1, outcome, "g", "http://b")
        for place, outcome in enumerate(("FENCED", "SUCCESS", "SUCCESS"), start=1)
    ],
    [MadeJob("a1", "g", "NEXT_ON_ERROR", 99, 1)],
)
"""Delivered once more, though not at once."""
PASSED = (
    [Made(name, 1, at, 1, "SUCCESS", "g", "http://b") for name, at in (("a1", 2), ("a2", 4), ("a1", 6))],
    [MadeJob("a1", "g", "NEXT_ON_ERROR", 99, 1), MadeJob("a2", "g", "BLOCK_ON_ERROR", 99, 2)],
)
"""Tried again behind one that had to wait for that."""


def attempts_table(session: SparkSession, made: Iterable[Made]) -> DataFrame:
    rows = [
        (one.id, one.attempt, one.started_ms, one.ended_ms, one.outcome, None, one.endpoint, one.group, "P")
        for one in made
    ]
    return session.createDataFrame(rows, schemas.ATTEMPTS)


def jobs_table(session: SparkSession, made: Iterable[MadeJob]) -> DataFrame:
    rows = [
        (one.id, one.group, one.mode, "COMPLETED", one.sequence, one.created_ms, one.scheduled_ms, "P", "http://a/x")
        for one in made
    ]
    return session.createDataFrame(rows, schemas.TOLD_JOBS)


def share_of(values: Sequence[float], share: float) -> float | None:
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else None


# What is counted -----------------------------------------------------------------------------------


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(made=tables, since_ms=st.sampled_from([0, 5, HOUR]))
@example(made=AGAIN, since_ms=0)
def test_each_hour_counts_in_spark_what_it_counts_in_plain_python(
    session: SparkSession, made: tuple[list[Made], list[MadeJob]], since_ms: int
) -> None:
    attempts, jobs = attempts_table(session, made[0]), jobs_table(session, made[1])
    inversions = order.out_of_order(order.judged(order.seen_by_server(attempts, jobs), since_ms))
    deliveries = report.since(report.deliveries_of(attempts, jobs), since_ms)
    found = report.by_hour(report.with_order(deliveries, inversions)).select(
        "hour", "endpoint", "pool", "msg_group", "attempts", "delivered", "failed", "retried", "duplicates",
        "out_of_order", "p50_ms", "p95_ms", "p99_ms", "wait_p50_ms",
    ).withColumn("hour", F.unix_millis("hour"))  # fmt: skip
    assertDataFrameEqual(found, session.createDataFrame(hours(*made, since_ms), found.schema), ignoreNullable=True)


def hours(attempts: list[Made], jobs: list[MadeJob], since_ms: int) -> list[tuple[Any, ...]]:
    by_id = {job.id: job for job in jobs}
    late = {job for job, _ in overtaken(attempts, jobs, since_ms)}
    cells: dict[tuple[Any, ...], list[tuple[Made, bool, bool, float | None]]] = defaultdict(list)
    seen: dict[str, bool] = {}
    for one in sorted(attempts, key=lambda one: (one.started_ms, one.attempt, one.outcome)):
        first, again = one.id not in seen, one.outcome == "SUCCESS" and seen.get(one.id, False)
        seen[one.id] = seen.get(one.id, False) or one.outcome == "SUCCESS"
        job, wait = by_id.get(one.id), None
        if first and job is not None:
            due = job.scheduled_ms
            since = max(due, job.created_ms) if due is not None and due <= one.started_ms else job.created_ms
            wait = float(max(0, one.started_ms - since))
        if one.started_ms >= since_ms:
            hour = one.started_ms - one.started_ms % HOUR
            cells[hour, one.endpoint, "P", one.group].append((one, first, again, wait))
    rows = []
    for key, cell in cells.items():
        latencies = [float(one.took_ms) for one, _, _, _ in cell]
        good = sum(one.outcome == "SUCCESS" for one, _, _, _ in cell)
        rows.append(
            (
                *key, len(cell), good, len(cell) - good, sum(not first for _, first, _, _ in cell),
                sum(again for _, _, again, _ in cell), sum(first and one.id in late for one, first, _, _ in cell),
                *(share_of(latencies, share) for share in (0.5, 0.95, 0.99)),
                share_of([wait for _, _, _, wait in cell if wait is not None], 0.5),
            )
        )  # fmt: skip
    return rows


def test_of_nothing_there_is_a_summary_too(session: SparkSession) -> None:
    attempts, jobs = attempts_table(session, []), jobs_table(session, [])
    inversions = order.out_of_order(order.seen_by_server(attempts, jobs))
    deliveries = report.with_order(report.deliveries_of(attempts, jobs), inversions)
    (row,) = report.measured(deliveries).collect()
    assert (row.attempts, row.delivered, row.out_of_order, row.p99_ms, row.from_ms) == (0, 0, 0, None, None)


def test_an_endpoint_is_named_without_what_may_be_secret(session: SparkSession) -> None:
    urls = {
        "https://user:pass@host.example:8443/hooks/a?token=s#f": "https://host.example:8443/hooks/a",
        "http://[::1]:80/x?y=http://u:p@z/": "http://[::1]:80/x",
        "http://h?token=s": "http://h",
        "http://h/a@b": "http://h/a@b",
    }
    table = session.createDataFrame([(url,) for url in urls], "url string")
    found = [row.name for row in table.select(report.endpoint_of("url").alias("name")).collect()]
    assert found == list(urls.values())


def test_tries_tell_how_many_attempts_a_message_needed(session: SparkSession) -> None:
    made = [
        Made("a", 1, 1, 1, "SUCCESS", None, "http://a"),
        Made("b", 1, 1, 1, "ERROR_PROCESS", None, "http://a"),
        Made("b", 2, 2, 1, "SUCCESS", None, "http://a"),
        Made("c", 1, 1, 1, "ERROR_PROCESS", None, "http://a"),
        Made("c", 2, 2, 1, "FENCED", None, "http://a"),
    ]
    deliveries = report.deliveries_of(attempts_table(session, made), jobs_table(session, []))
    expected = session.createDataFrame([(1, 1, 1), (2, 2, 1)], "tries long, messages long, delivered long")
    assertDataFrameEqual(report.by_tries(deliveries), expected, ignoreNullable=True)


# Order ---------------------------------------------------------------------------------------------


def overtaken(attempts: list[Made], jobs: list[MadeJob], since_ms: int = 0) -> set[tuple[str, str]]:
    """Each job with each that overtook it, by the sentences of `spark/transforms/order.py`."""
    times: dict[str, list[int]] = defaultdict(list)
    for one in attempts:
        times[one.id].append(one.started_ms)
    judged = [
        job
        for job in jobs
        if job.group is not None and job.mode != "IMMEDIATE" and job.id in times and min(times[job.id]) >= since_ms
    ]
    found = set()
    for job in judged:
        behind = [
            other
            for other in judged
            if other.group == job.group
            and (other.sequence, other.created_ms, other.id) > (job.sequence, job.created_ms, job.id)
        ]
        for mode, place in (("NEXT_ON_ERROR", min(times[job.id])), ("BLOCK_ON_ERROR", max(times[job.id]))):
            if mode == "NEXT_ON_ERROR" and job.mode != mode:
                continue
            rivals = sorted((min(times[other.id]), other.id) for other in behind if other.mode == mode)
            # Only the first: who came after it had gone has missed the place.
            if rivals and job.created_ms <= rivals[0][0] < place:
                found.add((job.id, rivals[0][1]))
    return found


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(made=tables, since_ms=st.sampled_from([0, 4]))
@example(made=PASSED, since_ms=0)
def test_out_of_order_in_spark_is_what_plain_python_says(
    session: SparkSession, made: tuple[list[Made], list[MadeJob]], since_ms: int
) -> None:
    seen = order.seen_by_server(attempts_table(session, made[0]), jobs_table(session, made[1]))
    rows = order.out_of_order(order.judged(seen, since_ms)).collect()
    expected = overtaken(*made, since_ms)
    assert Counter(row.id for row in rows) == Counter({job for job, _ in expected})
    assert {(row.id, row.overtaken_by) for row in rows} <= expected


def test_what_an_error_holds_may_be_passed_and_what_came_too_late_is_not_judged(session: SparkSession) -> None:
    jobs = [
        MadeJob("1 block, held by an error", "g", "BLOCK_ON_ERROR", 99, 1),
        MadeJob("2 next", "g", "NEXT_ON_ERROR", 99, 2),
        MadeJob("3 added late", "h", "NEXT_ON_ERROR", 1, 9),
        MadeJob("4 was there before", "h", "NEXT_ON_ERROR", 99, 1),
        MadeJob("5 retried behind a block", "i", "NEXT_ON_ERROR", 99, 1),
        MadeJob("6 block", "i", "BLOCK_ON_ERROR", 99, 2),
    ]
    times = {"1": [10], "2": [5], "3": [12], "4": [5], "5": [3, 30], "6": [20]}
    attempts = [
        Made(job.id, place + 1, at, 1, "SUCCESS", job.group, "http://a")
        for job in jobs
        for place, at in enumerate(times[job.id[0]])
    ]
    found = order.out_of_order(order.seen_by_server(attempts_table(session, attempts), jobs_table(session, jobs)))
    assert [(row.id[0], row.overtaken_by[0]) for row in found.collect()] == [("5", "6")]


# Journals ------------------------------------------------------------------------------------------


def test_journals_tell_of_messages_that_are_no_jobs_and_bear_witness_for_those_that_are(
    session: SparkSession, tmp_path: Path
) -> None:
    now = [0.0]
    journal = Journal(tmp_path / "of [a] run.ndjson", now_ms=lambda: now[0])

    def request(name: str, group: str, begin: float, end: float, status: int) -> None:
        now[0] = begin
        journal.start(name, group, epoch=1)
        now[0] = end
        journal.end(name, group, epoch=1, status=status)

    for place, name in enumerate(("m1", "m2", "m3")):
        now[0] = 10.0 + place
        journal.sent(name, "g", place)
    request("m2", "g", 20, 25, 200)
    request("m1", "g", 30, 32.5, 500)
    request("m1", "g", 40, 41, 200)
    now[0] = 50
    journal.end("m3", "g", epoch=1, status=412)
    request("j2", "h", 60, 61, 200)
    request("j1", "h", 70, 71, 200)
    journal.close()
    with (tmp_path / "of [a] run.ndjson").open("ab") as file:
        file.write(b'{"kind":"start","id":"half')

    jobs = jobs_table(session, [MadeJob(name, "h", "NEXT_ON_ERROR", 99, 1) for name in ("j1", "j2")])
    written = journals(session, [tmp_path / "of [a] run.ndjson"])
    found = report.deliveries_in(written, jobs, attempts_table(session, []))
    expected = [
        ("m2", "SUCCESS", 20, 5.0, True, 9.0),
        ("m1", "ERROR_PROCESS", 30, 2.5, True, 20.0),
        ("m1", "SUCCESS", 40, 1.0, False, None),
        ("m3", "FENCED", 50, None, True, 38.0),
    ]
    columns = found.select("id", "outcome", "started_ms", "latency_ms", "first", "wait_ms")
    assertDataFrameEqual(columns, session.createDataFrame(expected, columns.schema), ignoreNullable=True)
    assert {row.endpoint for row in found.collect()} == {"of%20%5Ba%5D%20run.ndjson"}

    seen = order.seen_by_endpoints(written, jobs).unionByName(order.seen_by_producers(written))
    told = {(row.witness, row.id, row.overtaken_by) for row in order.out_of_order(seen).collect()}
    assert told == {(order.ENDPOINTS, "j1", "j2"), (order.PRODUCERS, "m1", "m2")}
