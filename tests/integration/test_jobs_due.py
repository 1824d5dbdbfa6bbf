"""The lag of the pipeline, asked of real databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fakeredis
import pytest
from sqlalchemy import text, update

from fleet.alarms import Alarms
from fleet.config.settings import load
from fleet.jobs.database import open_engine, parse_url, writing
from fleet.jobs.due import Due, DueJobs
from fleet.jobs.records import NewJob
from fleet.jobs.schema import dispatch_jobs
from fleet.jobs.store import JobStore
from fleet.server.due import EVERY_MS, DueNow
from fleet.state.warnings import Warnings
from tests.clocks import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def lag(database_url: str, tmp_path: Path, clock: HandClock) -> Iterator[DueJobs]:
    settings = load(environment={"FLEET_DATABASE_URL": database_url}, directory=tmp_path)
    made = DueJobs(settings, clock=clock)
    yield made
    made.close()


@pytest.fixture
def store(database_url: str, clock: HandClock) -> Iterator[JobStore]:
    made = JobStore(open_engine(parse_url(database_url)), clock=clock)
    yield made
    made.close()


def job(**given: int) -> NewJob:
    return NewJob(target_url="http://127.0.0.1:1/", payload="1", **given)  # type: ignore[arg-type]


def test_what_is_due_and_pending_is_counted_and_the_first_of_it_says_for_how_long(
    lag: DueJobs, store: JobStore, clock: HandClock, database_url: str, tmp_path: Path
) -> None:
    assert lag() is None
    if database_url.startswith("sqlite"):
        assert list(tmp_path.glob("jobs.db*")) == []
    store.migrate()
    assert lag() == Due(0, 0.0)
    began_ms = clock.now_ms
    later = job(scheduled_ms=began_ms + 3000)
    store.add_jobs([job(), job(), later, job(scheduled_ms=began_ms + 2**40)])
    clock.now_ms += 2500
    assert lag() == Due(2, 2.5)
    clock.now_ms += 1000
    with writing(store.engine) as connection:
        out = update(dispatch_jobs).where(dispatch_jobs.c.scheduled_ms.is_(None)).values(status="QUEUED")
        connection.execute(out)
    assert lag() == Due(1, 0.5)


async def test_a_job_store_that_breaks_is_one_warning_and_no_figure_until_it_answers_again(
    lag: DueJobs, store: JobStore, clock: HandClock
) -> None:
    store.migrate()
    async with fakeredis.FakeAsyncRedis(decode_responses=True, server=fakeredis.FakeServer()) as client:
        alarms = Alarms(warnings=Warnings(client), source="server")
        due = DueNow(ask=lag, clock=clock, alarms=alarms)
        assert await due() == Due(0, 0.0)
        with writing(store.engine) as connection:
            connection.execute(text("ALTER TABLE dispatch_jobs RENAME TO gone"))
        assert await due() == Due(0, 0.0), "not asked again so soon"
        for _ in range(2):
            clock.now_ms += int(EVERY_MS)
            assert await due() is None
        await alarms.flush()
        (warning,) = await Warnings(client).list(unacknowledged=True)
        assert (warning.category, warning.count) == ("JOB_STORE", 1)
        with writing(store.engine) as connection:
            connection.execute(text("ALTER TABLE gone RENAME TO dispatch_jobs"))
        clock.now_ms += int(EVERY_MS)
        assert await due() == Due(0, 0.0)
        due.close()
