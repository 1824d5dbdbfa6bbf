"""`scripts/bench` in a tiny form: what it measures is of no interest here, that it tells the truth is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers.java import QUICK

ROOT = Path(__file__).resolve().parents[2]
DIVISOR = 200
COUNTS = {"pool": 160_000, "pool-1": 160_000, "whole-path": 100_000, "one-group": 60_000}
"""Messages of a full run of the rows that deliver to the common sink."""
LOOP = 200_000
"""Jobs of a full run of the pipeline's loop."""
TIMEOUT_S = 240


def bench(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # The module rather than the script: the script sets the environment up first, which the test suite has done.
    path = os.pathsep.join([str(ROOT / "scripts"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "JDK_JAVA_OPTIONS": QUICK}
    command = [sys.executable, "-P", "-m", "benchmark", "--out", str(out), *arguments]
    return subprocess.run(
        command, env=environment, cwd=out, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("bench")
    ended = bench(out, "--only", "fleet", "--divide", str(DIVISOR))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report: dict[str, Any] = json.loads((out / "bench.json").read_text())
    return report


def rows(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in report["rows"]}


def test_every_row_of_fleet_has_a_figure_and_no_problem(tiny_run: dict[str, Any]) -> None:
    measured = rows(tiny_run)
    assert COUNTS.keys() < measured.keys()
    assert {name: row["problems"] for name, row in measured.items() if row["problems"]} == {}
    assert [name for name, row in measured.items() if not row["value"] > 0] == []


def test_each_message_was_delivered_once_and_the_source_is_empty(tiny_run: dict[str, Any]) -> None:
    measured = rows(tiny_run)
    for name, count in COUNTS.items():
        for attempt in measured[name]["attempts"]:
            assert attempt["messages"] == attempt["delivered"] == count // DIVISOR, name
            assert attempt["left"] == 0, name
    for name in ("latency", "concurrency"):
        attempt = measured[name]["attempts"][0]
        assert attempt["delivered"] == attempt["messages"] > 0, name


def test_every_budget_of_the_design_is_judged(tiny_run: dict[str, Any]) -> None:
    # Those that need a peer or a limit are judged where these run.
    judged = {name for name, row in rows(tiny_run).items() if row["budgets"]}
    assert judged == {
        "whole-path",
        "path-own",
        "one-group",
        "claim-groups",
        "claim-pools",
        "latency",
        "idle",
        "memory",
        "memory-unique",
        "topic-publish",
        "concurrency",
    }


def test_every_row_of_the_large_fleet_has_a_figure_a_budget_and_no_problem(tmp_path: Path) -> None:
    ended = bench(tmp_path, "--only", "scale", "--divide", str(DIVISOR))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    measured = rows(json.loads((tmp_path / "bench.json").read_text()))
    assert set(measured) == {
        "scale-idle",
        "scale-sparse",
        "scale-slow",
        "scale-process",
        "scale-look",
        "scale-takeover",
    }
    assert {name: row["problems"] for name, row in measured.items() if row["problems"]} == {}
    assert [name for name, row in measured.items() if not (row["value"] > 0 and row["budgets"])] == []


def test_every_row_of_our_sqs_door_has_a_figure_and_no_problem(tmp_path: Path) -> None:
    ours = {"sqs-door", "sqs-door-tens", "sqs-door-fifo", "sqs-waits", "sqs-size", "sqs-size-fifo"}
    ours |= {"sqs-memory", "sqs-memory-fifo"}
    ended = bench(tmp_path, "--only", ",".join(ours), "--divide", str(DIVISOR))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    measured = rows(json.loads((tmp_path / "bench.json").read_text()))
    assert {name for name, row in measured.items() if row["value"] > 0 and not row["problems"]} == ours
    # Of the two more, one has no budget of its own, and one is judged beside what has one.
    assert {name for name, row in measured.items() if not row["budgets"]} == {"sqs-door-fifo", "sqs-memory-fifo"}


def test_the_poller_beside_the_pipeline_leaves_each_message_once_and_in_order(tmp_path: Path) -> None:
    ended = bench(tmp_path, "--only", "poller", "--divide", str(DIVISOR))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    poller = rows(json.loads((tmp_path / "bench.json").read_text()))["poller"]
    assert [(one["sent"], one["jobs"]) for one in poller["attempts"]] == [(LOOP // DIVISOR,) * 2] * 3
    assert poller["problems"] == []


@pytest.mark.long
def test_every_row_of_the_pipeline_has_a_figure_and_no_problem(tmp_path: Path) -> None:
    ended = bench(tmp_path, "--only", "pipeline", "--divide", "20")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    measured = rows(json.loads((tmp_path / "bench.json").read_text()))
    assert {name for name, row in measured.items() if row["kind"] == "pipeline" and row["value"] > 0} == {
        "duckdb",
        "pipeline-backfill",
        "poller",
        "pipeline-loop",
        "fan-out",
        "pipeline-latency",
    }
    judged = {name for name, row in measured.items() if row["budgets"]}
    assert judged == {"pipeline-backfill", "pipeline-loop", "pipeline-latency"}


def test_an_unknown_scenario_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    ended = bench(tmp_path, "--only", "nonsense")
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].endswith("no such scenario: nonsense (see --list)")
