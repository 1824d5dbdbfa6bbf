"""What tests of the job store have in common."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import update

from fleet.jobs.database import open_engine, parse_url, writing
from fleet.jobs.records import Job, NewJob, Taken
from fleet.jobs.schema import dispatch_jobs
from fleet.jobs.store import JobStore
from tests.clocks import HandClock

T = TypeVar("T")


@contextmanager
def a_store(database_url: str, clock: HandClock) -> Iterator[JobStore]:
    store = JobStore(open_engine(parse_url(database_url)), clock=clock)
    store.migrate()
    yield store
    store.close()


def job(**given: object) -> NewJob:
    base = NewJob(target_url="http://127.0.0.1:1/", payload='{"n":1}')
    return dataclasses.replace(base, **given)  # type: ignore[arg-type]


def added(store: JobStore, **given: object) -> Job:
    (id_,) = store.add_jobs([job(**given)]).ids
    found = store.job(id_)
    assert found is not None
    return found


def claimed(store: JobStore, job: Job) -> Job:
    claim = store.take(job.id, job.attempt)
    assert isinstance(claim, Taken)
    return claim.job


def at_once(calls: list[Callable[[], T]]) -> list[T]:
    """All of them, from threads that start together."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


def set_values(store: JobStore, job: Job, **values: object) -> None:
    """As another program might."""
    with writing(store.engine) as connection:
        connection.execute(update(dispatch_jobs).where(dispatch_jobs.c.id == job.id).values(**values))
