"""A driver that does nothing for a while: another does its work, and nothing that it does when it wakes counts."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from sqlalchemy import Connection, Table

from fleet.errors import Fenced, JobStoreError
from fleet.jobs import database
from spark.lead import Lead
from spark.sources import ledger
from spark.sources.copy import insert_rows
from spark.sources.ledger import Ledger
from tests.acceptance.fleet_command import Process
from tests.servers.local import RedisServer
from tests.spark.driver import Ground
from tests.spark.works import the_works

JOBS = 3000


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_driver_that_hangs_or_is_stopped_in_publish_is_replaced_and_does_nothing_when_it_wakes(
    tmp_path: Path, redis_server: RedisServer, database_url: str
) -> None:
    """The first one's own thread hangs and its others go on; the second is stopped whole, in mid-publish."""
    with the_works(tmp_path, redis_server, database_url) as works:
        works.add(JOBS, groups=JOBS)
        hanging = works.start_driver("feed-frozen:block")
        works.says(hanging, "leading")
        stopped = works.start_driver("feed-publishing:stop-driver")
        works.says(hanging, "blocked at failpoint")
        works.says(stopped, "leading")
        last = works.start_driver()
        works.wait(lambda: _is_stopped(stopped), "not stopped")
        unfinished = Ledger(works.store.engine).unfinished()
        assert unfinished is not None and unfinished.state == "frozen"
        works.wait(lambda: works.store.stats()["QUEUED"] == JOBS, "not all queued")
        assert (works.published.count, works.published.twice()) == (JOBS, [])
        epochs = works.newest_epoch()
        for driver in (hanging, stopped):
            driver.popen.send_signal(signal.SIGCONT)
            works.says(driver, "the lead over the feed is lost")
        assert [driver.stop() for driver in (hanging, stopped, last)] == [0, 0, 0]
        for driver in (hanging, stopped):
            assert "0 published in 0 epochs, 0 queued" in driver.text()
        assert (works.published.count, works.published.twice()) == (JOBS, [])
        assert works.newest_epoch() == epochs
        assert works.claimed() == JOBS
        assert works.store.stats()["QUEUED"] == JOBS


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_driver_whose_java_is_killed_in_publish_ends_with_one_line_and_the_next_one_goes_on(
    tmp_path: Path, redis_server: RedisServer, database_url: str
) -> None:
    with the_works(tmp_path, redis_server, database_url) as works:
        works.add(JOBS, groups=JOBS)
        first = works.start_driver("feed-publishing:stop-driver:2")
        works.says(first, "leading")
        works.wait(lambda: _is_stopped(first), "not stopped")
        (java,) = (child for child in psutil.Process(first.popen.pid).children() if "java" in child.name())
        java.kill()
        first.popen.send_signal(signal.SIGCONT)
        assert first.popen.wait(30) == 1
        # Nothing of what Java says at each start. Its Python workers may say that they have lost it.
        said = first.text().splitlines()
        assert said[0] == "the feed is leading"
        assert said.count("fleet: Spark has ended") == 1, first.text()
        last = works.start_driver()
        works.wait(lambda: works.store.stats()["QUEUED"] == JOBS, "not all queued")
        assert (works.published.count, works.published.twice()) == (JOBS, [])
        assert last.stop() == 0


def _is_stopped(driver: Process) -> bool:
    return psutil.Process(driver.popen.pid).status() == psutil.STATUS_STOPPED


def test_the_lead_outlasts_its_time_while_work_gets_on_and_ends_when_it_does_not(redis_server: RedisServer) -> None:
    with _a_lead(redis_server, patience_s=0.5) as first, _a_lead(redis_server) as second:
        first.lead()
        steps, done = Counter[str](), threading.Event()

        def progress() -> int:
            steps["seen"] += 1
            return steps["seen"]

        threading.Timer(1.5, done.set).start()
        assert first.attend(lambda: done.wait(10), progress=progress)
        assert not second.try_to_lead()
        hangs = threading.Event()
        with pytest.raises(Fenced, match="no progress for 0.5 s"):
            first.attend(lambda: hangs.wait(10))
        # Given up, not left to lapse.
        assert second.try_to_lead()
        with pytest.raises(Fenced):
            _ = first.fence
        hangs.set()


def test_nobody_keeps_the_lead_of_a_driver_whose_own_thread_hangs(redis_server: RedisServer) -> None:
    with _a_lead(redis_server) as first, _a_lead(redis_server) as second:
        first.lead()
        began = time.monotonic()
        second.lead()
        assert time.monotonic() - began < 1
        with pytest.raises(Fenced):
            first.keep()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_driver_that_is_stopped_in_a_transaction_holds_nobody_up(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, wakes, drivers = threading.Event(), threading.Event(), Ledger(ground.store.engine)
    monkeypatch.setattr(database, "ASLEEP_MS", 300)
    sleeper = Ledger(database.open_engine(database.parse_url(ground.database)))
    claims = pa.table({"shard": [0], "seq": [1], "job_id": ["a"], "attempt": [1], "msg_group": ["g"]})

    def falls_asleep(connection: Connection, table: Table, rows: pa.Table) -> None:
        begun.set()
        wakes.wait(20)
        insert_rows(connection, table, rows)

    monkeypatch.setattr(ledger, "insert_rows", falls_asleep)
    with ThreadPoolExecutor() as threads:
        freezing = threads.submit(sleeper.freeze, claims, fence=1, now_ms=1)
        assert begun.wait(10)
        try:
            drivers.begin(fence=2, now_ms=2)
        finally:
            wakes.set()
        with pytest.raises(JobStoreError):
            freezing.result()
    assert drivers.unfinished() is None


def _a_lead(redis: RedisServer, *, patience_s: float = 60) -> Lead:
    return Lead(redis_url=redis.url, sqs_endpoint="", ttl_ms=600, patience_s=patience_s)
