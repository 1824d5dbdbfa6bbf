"""How far the pipeline is behind: how many jobs are due and not published, and for how long the first of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Case, Engine, case, func, inspect, or_, select

from fleet.clock import Clock
from fleet.config.settings import Settings
from fleet.jobs.database import database_url, open_engine, reading
from fleet.jobs.schema import dispatch_jobs


@dataclass(frozen=True, slots=True)
class Due:
    jobs: int
    oldest_s: float


def due_since() -> Case[int]:
    """Since when a due job has been due. A time that had passed when the job was added counts as that moment."""
    job = dispatch_jobs.c
    return case((job.scheduled_ms > job.created_ms, job.scheduled_ms), else_=job.created_ms)


class DueJobs:
    """Only looks: makes neither a file nor tables. Blocking, for one thread."""

    def __init__(self, settings: Settings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._engine: Engine | None = None
        self._has_tables = False

    def __call__(self) -> Due | None:
        """None while there is no file, or no table of jobs."""
        url = database_url(self._settings)
        if url.drivername == "sqlite" and not Path(str(url.database)).exists():
            return None
        if self._engine is None:
            self._engine = open_engine(url, connections=1)
        job, now_ms = dispatch_jobs.c, self._clock.wall_ms()
        since = func.min(due_since())
        # By the index of statuses: finished jobs, which are most of them, are not read.
        question = select(func.count(), since).where(
            job.status == "PENDING", or_(job.scheduled_ms.is_(None), job.scheduled_ms <= now_ms)
        )
        with reading(self._engine) as connection:
            self._has_tables = self._has_tables or inspect(connection).has_table(dispatch_jobs.name)
            if not self._has_tables:
                return None
            count, oldest_ms = connection.execute(question).one()
        return Due(count, 0.0 if oldest_ms is None else max(0, now_ms - oldest_ms) / 1000)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
