"""`fleet feed` as its user runs it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from fleet.jobs.records import NewJob
from tests.acceptance.fleet_command import Fleet
from tests.spark.driver import PATIENCE_S, Ground
from tests.waiting import until


@pytest.fixture
def fleet(ground: Ground, tmp_path: Path) -> Fleet:
    return Fleet(
        tmp_path,
        {
            "FLEET_REDIS_URL": ground.redis.url,
            "FLEET_DATABASE_URL": ground.database,
            "FLEET_DATA_DIR": str(tmp_path),
            "FLEET_LEASE_TTL_MS": "2000",
            "FLEET_FEED_POLL_INTERVAL_S": "0.1",
            "FLEET_FEED_MASTER": "local[1]",
        },
    )


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_run_publishes_what_falls_due_while_another_stands_by_and_takes_over(ground: Ground, fleet: Fleet) -> None:
    ground.add(30, groups=30)
    with fleet.running("feed", "run") as first:
        first.says("leading")
        with fleet.running("feed", "run") as second:
            second.says("standing by")
            until(lambda: ground.states() == {("QUEUED", 1): 30}, why=first.text, within_s=PATIENCE_S)
            assert first.stop() == 0
            assert "30 published in 1 epoch, 30 queued" in first.text()
            second.says("leading")
            ground.store.add_jobs([NewJob(target_url="http://127.0.0.1/", payload="{}")])
            until(lambda: ground.states() == {("QUEUED", 1): 31}, why=second.text, within_s=PATIENCE_S)
            assert second.stop(signal.SIGINT) == 0
    assert len(ground.drain()) == 31


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_once_with_nothing_due_needs_no_spark_and_says_so_in_one_line(ground: Ground, fleet: Fleet) -> None:
    ground.add(1, groups=1, scheduled_ms=253_402_300_799_000)
    (held,) = ground.places()
    done = fleet.run("feed", "once", PYSPARK_PYTHON="/nowhere", JAVA_HOME="/nowhere")
    assert (done.code, done.err) == (0, "")
    assert done.out == "0 events → 0 jobs, 0 published in 0 epochs, 0 queued\n"
    said = fleet.run("feed", "explain", held)
    assert said.code == 0
    assert "does not go: it is to go in" in said.out
    assert fleet.run("feed", "explain", "nobody").err == "fleet: there is no job nobody\n"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_once_does_nothing_while_another_leads(ground: Ground, fleet: Fleet) -> None:
    ground.add(1, groups=1)
    with ground.leading():
        done = fleet.run("feed", "once", FLEET_LEASE_TTL_MS="300")
    assert done.code == 1
    assert "feeds the queue: stop it first, nothing was done here" in done.err
    assert ground.states() == {("PENDING", 1): 1}
