"""A job store, and jobs as a test wants them in it."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import update

from fleet.clock import Clock, SystemClock
from fleet.jobs.database import open_engine, parse_url, writing
from fleet.jobs.records import Job, NewJob, Taken
from fleet.jobs.schema import dispatch_jobs
from fleet.jobs.store import JobStore

T = TypeVar("T")


@contextmanager
def a_store(database_url: str, clock: Clock | None = None) -> Iterator[JobStore]:
    store = JobStore(open_engine(parse_url(database_url)), clock=clock or SystemClock())
    try:
        store.migrate()
        yield store
    finally:
        store.close()


def job(**given: object) -> NewJob:
    base = NewJob(target_url="http://127.0.0.1:1/", payload='{"n":1}')
    return dataclasses.replace(base, **given)  # type: ignore[arg-type]


def added(store: JobStore, **given: object) -> Job:
    (id_,) = store.add_jobs([job(**given)]).ids
    return job_of(store, id_)


def job_of(store: JobStore, id_: str) -> Job:
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


@dataclass
class InStore:
    """Whatever works on the jobs of a store."""

    store: JobStore

    def job(self, id_: str) -> Job:
        return job_of(self.store, id_)

    def set(self, job: Job, **values: object) -> None:
        set_values(self.store, job, **values)
