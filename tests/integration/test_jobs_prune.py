"""What is over and old goes, and nothing that anybody still needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select, update

from fleet.config.settings import DatabaseSettings, Settings
from fleet.jobs import prune as pruning
from fleet.jobs.database import reading, writing
from fleet.jobs.prune import Pruned, prune
from fleet.jobs.records import STATUSES, NewEvent, NewJob, Status
from fleet.jobs.schema import claims, dispatch_attempts, dispatch_jobs, epochs, events
from fleet.jobs.store import JobStore, open_store
from tests.acceptance.fleet_command import Fleet

NOW_MS = 2_000_000
OLD_MS = 1_000_000
NOTHING = Pruned()


@pytest.fixture
def store(database_url: str, tmp_path: Path) -> Iterator[JobStore]:
    made = open_store(Settings(data_dir=tmp_path, database=DatabaseSettings(url=database_url)), durable=False)
    yield made
    made.close()


def add(store: JobStore, status: Status, *, over_ms: int | None = OLD_MS, attempts: int = 1) -> str:
    (id_,) = store.add_jobs([NewJob(target_url="http://h/", payload="1", msg_group="g")]).ids
    with writing(store.engine) as connection:
        values = {"status": status, "created_ms": OLD_MS - 1, "completed_ms": over_ms}
        connection.execute(update(dispatch_jobs).where(dispatch_jobs.c.id == id_).values(values))
        for number in range(1, attempts + 1):
            attempt = {
                "job_id": id_, "attempt": number, "started_ms": 1, "ended_ms": 2, "outcome": "SUCCESS",
                "target_url": "http://h/", "pool": "P",
            }  # fmt: skip
            connection.execute(insert(dispatch_attempts), [attempt])
    return id_


def add_epoch(store: JobStore, number: int, state: str, marked_ms: int | None, jobs: int) -> None:
    with writing(store.engine) as connection:
        row = {"epoch": number, "fence": 1, "state": state, "jobs": jobs, "created_ms": 1, "marked_ms": marked_ms}
        connection.execute(insert(epochs), [row])
        for job in range(jobs):
            connection.execute(
                insert(claims), [{"epoch": number, "shard": 0, "seq": job, "job_id": f"j{job}", "attempt": 1}]
            )


def left(store: JobStore) -> set[str]:
    return {job.id for job in store.jobs(limit=0)}


def test_jobs_that_are_over_go_with_their_attempts_and_all_others_stay(store: JobStore) -> None:
    over: tuple[Status, ...] = ("COMPLETED", "EXPIRED", "CANCELLED")
    gone = {add(store, status, attempts=2) for status in over}
    stay = {add(store, status, over_ms=OLD_MS) for status in STATUSES if status not in over}
    stay |= {add(store, status, over_ms=NOW_MS) for status in over}
    assert prune(store.engine, before_ms=NOW_MS, dry_run=True) == Pruned(jobs=3, attempts=6)
    assert gone < left(store)
    assert prune(store.engine, before_ms=NOW_MS) == Pruned(jobs=3, attempts=6)
    assert left(store) == stay
    assert all(len(store.attempts(id_)) == 1 for id_ in stay)
    assert prune(store.engine, before_ms=NOW_MS) == NOTHING


def test_a_job_in_error_goes_only_when_that_is_asked(store: JobStore) -> None:
    error = add(store, "ERROR")
    assert prune(store.engine, before_ms=NOW_MS) == NOTHING
    assert left(store) == {error}
    assert prune(store.engine, before_ms=NOW_MS, errors=True) == Pruned(jobs=1, attempts=1)


def test_an_event_goes_once_it_was_fanned_out_and_no_later_than_its_jobs(
    store: JobStore,
) -> None:
    old, new, waits = store.add_events([NewEvent(type="a", payload="1") for _ in range(3)]).ids
    with writing(store.engine) as connection:
        connection.execute(update(events).where(events.c.id != waits).values(fanned_out=1))
        connection.execute(update(events).where(events.c.id != new).values(created_ms=OLD_MS))
    job = add(store, "COMPLETED")
    seen: list[tuple[set[str], set[str]]] = []

    def look(_: Pruned) -> None:
        seen.append(({event.id for event in store.events()}, left(store)))

    assert prune(store.engine, before_ms=NOW_MS, on_progress=look) == Pruned(jobs=1, attempts=1, events=1)
    assert seen == [({new, waits}, {job}), ({new, waits}, set())]
    assert old not in seen[0][0]


def test_the_newest_epoch_and_those_that_are_not_marked_stay(store: JobStore) -> None:
    add_epoch(store, 1, "marked", OLD_MS, jobs=3)
    add_epoch(store, 2, "frozen", None, jobs=1)
    add_epoch(store, 3, "marked", OLD_MS, jobs=2)
    assert prune(store.engine, before_ms=NOW_MS, dry_run=True) == Pruned(epochs=1, claims=3)
    assert prune(store.engine, before_ms=NOW_MS) == Pruned(epochs=1, claims=3)
    with reading(store.engine) as connection:
        assert connection.execute(select(epochs.c.epoch).order_by(epochs.c.epoch)).scalars().all() == [2, 3]
        assert connection.execute(select(func.count()).select_from(claims)).scalar() == 3


def test_it_goes_in_batches_and_none_is_passed_over(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "BATCH", 4)
    for _ in range(11):
        add(store, "COMPLETED")
    add_epoch(store, 1, "marked", OLD_MS, jobs=9)
    add_epoch(store, 2, "marked", OLD_MS, jobs=0)
    steps: list[Pruned] = []
    prune(store.engine, before_ms=NOW_MS, on_progress=lambda pruned: steps.append(dataclasses.replace(pruned)))
    assert [step.jobs for step in steps if step.claims == 0] == [4, 8, 11]
    assert [step.claims for step in steps if step.claims] == [4, 8, 9]
    assert left(store) == set()


def test_the_command_counts_first_and_removes_then(database_url: str, store: JobStore, tmp_path: Path) -> None:
    add(store, "COMPLETED")
    fleet = Fleet(tmp_path, {"FLEET_DATABASE_URL": database_url})
    prune_30d = ("jobs", "prune", "--older-than", "30d")
    counts = {"jobs": 1, "attempts": 1, "events": 0, "epochs": 0, "claims": 0}
    assert fleet.run(*prune_30d, "--dry-run", "--json").document == {**counts, "dryRun": True}
    assert fleet.run(*prune_30d).out == "Removed 1 jobs, 1 attempts, 0 events, 0 epochs, 0 claims.\n"
    assert left(store) == set()
    wrong = fleet.run("jobs", "prune", "--older-than", "30")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
