"""Why a job goes, or does not: its group is read from the store and judged as the plan would judge it."""

from __future__ import annotations

from sqlalchemy import Engine, func, select

from fleet.jobs.database import reading
from fleet.jobs.schema import dispatch_jobs
from spark.sources.queries import of_group
from spark.why import job_of, verdicts


def explain(engine: Engine, job_id: str, *, now_ms: int, window: int) -> str | None:
    """None: there is no such job."""
    with reading(engine) as connection:
        rows = connection.execute(of_group(job_id)).mappings().all()
        last_error = connection.execute(
            select(func.coalesce(dispatch_jobs.c.last_error, "")).where(dispatch_jobs.c.id == job_id)
        ).scalar()
    jobs = [job_of(dict(row)) for row in rows]
    job = next((one for one in jobs if one.id == job_id), None)
    if job is None:
        return None
    verdict = verdicts(jobs, now_ms=now_ms, window=window)[job_id]
    where = f"group {job.msg_group}" if job.msg_group is not None else "no group"
    told = f"; last error: {last_error}" if last_error else ""
    word = "goes with the next epoch" if verdict.goes else "does not go"
    return f"{job.id} ({job.mode}, {where}, attempt {job.attempt}) {word}: {verdict.because}{told}"
