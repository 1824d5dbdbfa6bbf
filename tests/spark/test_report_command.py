"""`fleet report` as its user runs it."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from fleet.operate.journal import Journal
from fleet.outcome import Delivered, Failed
from spark.steps.report import Wanted, report
from tests.acceptance.fleet_command import Fleet
from tests.spark.driver import PATIENCE_S, Ground

PNG = b"\x89PNG"


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path, {"FLEET_DATA_DIR": str(tmp_path)}, patience_s=PATIENCE_S)


def settle(ground: Ground, job_id: str, attempt: int, outcome: Delivered | Failed) -> None:
    claim = ground.store.take(job_id, attempt)
    job = getattr(claim, "job", None)
    assert job is not None
    started_ms = job.created_ms + 10 * attempt
    ground.store.settle(job, outcome, started_ms=started_ms, status_code=200, ended_ms=started_ms + 5)


def test_attempts_of_the_store_become_tables_and_counts(ground: Ground, tmp_path: Path) -> None:
    first, second, third = ground.add(3, groups=1)
    settle(ground, first, 1, Delivered())
    settle(ground, second, 1, Failed("HTTP 503", status=503))
    ground.set_all([second], scheduled_ms=None)
    settle(ground, second, 2, Delivered())
    wanted = Wanted(out=tmp_path / "out", since_ms=0, journals=[], master="local[1]")
    found = report(ground.settings, wanted, say=ground.said.append, spark=ground.spark)
    assert found.headline()["messages"] == found.headline()["delivered"] == 2
    assert {name: found.headline()[name] for name in ("attempts", "failedAttempts", "retries", "outOfOrder")} == {
        "attempts": 3, "failedAttempts": 1, "retries": 1, "outOfOrder": 0,
    }  # fmt: skip
    assert (found.headline()["p50Ms"], found.headline()["judgedInOrder"]) == (5.0, 2)
    assert found.headline()["jobs"] == {"COMPLETED": 2, "PENDING": 1}
    assert third not in {row["id"] for row in found.inversions}
    rows = pq.read_table(tmp_path / "out" / "tables" / "hours.parquet").to_pylist()
    assert sum(row["attempts"] for row in rows) == 3
    assert {(row["endpoint"], row["pool"], row["msg_group"]) for row in rows} == {
        ("http://127.0.0.1/", "DEFAULT-POOL", "g0")
    }
    assert (tmp_path / "out" / "plots" / "outcomes.png").read_bytes().startswith(PNG)
    assert [line.split(":")[0] for line in ground.said] == [
        "Starting Spark", "Reading attempts", "3 attempts", "Writing the tables", "Drawing",
    ]  # fmt: skip


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_journals_alone_are_reported_without_a_job(ground: Ground, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run.ndjson")
    for place in range(10):
        journal.sent(f"m{place}", "g", place)
        journal.start(f"m{place}", "g", epoch=1)
        journal.end(f"m{place}", "g", epoch=1, status=200)
    journal.close()
    wanted = Wanted(out=tmp_path / "out", since_ms=0, journals=[tmp_path / "run.ndjson"], master="local[1]")
    told = report(ground.settings, wanted, say=ground.said.append, spark=ground.spark).headline()
    assert (told["messages"], told["delivered"], told["outOfOrder"], told["judgedInOrder"]) == (10, 10, 0, 10)
    assert "run.ndjson" in (tmp_path / "out" / "report.html").read_text()


def test_an_empty_store_has_a_clear_page_and_needs_no_spark(fleet: Fleet, tmp_path: Path) -> None:
    done = fleet.run("report", JAVA_HOME="/nowhere", PYSPARK_PYTHON="/nowhere")
    assert (done.code, done.out) == (0, f"Nothing was delivered yet\n{tmp_path}/report/report.html\n")
    assert "Nothing was delivered yet." in (tmp_path / "report" / "report.html").read_text()
    late = fleet.run("report", "--since", "2h", "--json", "--quiet")
    assert (late.code, late.err, late.document["messages"]) == (0, "", 0)


def test_a_wrong_call_is_one_line(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    bad = fleet.run("report", "--out", "file/sub")
    assert (bad.code, bad.out) == (1, "")
    assert bad.err == f"fleet: cannot write to {tmp_path}/file/sub/tables: Not a directory\n"
    when = fleet.run("report", "--since", "yesterday")
    assert (when.code, when.err.count("\n")) == (2, 1)
    assert "neither a time" in when.err
    assert fleet.run("report", "--journal", "none.ndjson").code == 2
    said = fleet.run("report", "--help")
    assert "Example:" in said.out
