"""What holds a job back, in plain Python: for `fleet feed explain`, and as the oracle for tests of the Spark plan."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.words import span


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    id: str
    msg_group: str | None
    mode: str
    status: str
    sequence: int
    created_ms: int
    attempt: int
    tried: int = 0
    """Not 0 once its target has failed it. `attempt` does not say that: it also rises when no request was made."""
    scheduled_ms: int | None = None
    expires_ms: int | None = None
    pool: str = ""

    @property
    def place(self) -> tuple[int, int, str]:
        return self.sequence, self.created_ms, self.id


@dataclass(frozen=True, slots=True)
class Standing:
    goes: bool
    because: str


GOES = Standing(True, "it is due and nothing holds it")


def verdicts(jobs: Iterable[Candidate], *, now_ms: int, window: int) -> dict[str, Standing]:
    """Say of each job whether it may go now. `jobs` must hold all of a group that are not over; ERROR is not over."""
    by_group: dict[str, list[Candidate]] = {}
    found: dict[str, Standing] = {}
    for job in jobs:
        if not job.msg_group:
            found[job.id] = _by_itself(job, now_ms) or GOES
        else:
            by_group.setdefault(job.msg_group, []).append(job)
    for group in by_group.values():
        found |= _of_group(sorted(group, key=lambda job: job.place), now_ms, window)
    return found


def _by_itself(job: Candidate, now_ms: int) -> Standing | None:
    """What holds it back on its own, whatever its siblings do."""
    if job.status != "PENDING":
        return Standing(False, f"it is {job.status}")
    if job.expires_ms is not None and job.expires_ms <= now_ms:
        return Standing(False, "it has expired")
    if (job.scheduled_ms or 0) > now_ms:
        what = "is to be tried again" if job.tried else "is to go"
        return Standing(False, f"it {what} in {span(((job.scheduled_ms or 0) - now_ms) / 1000)}")
    return None


def _of_group(group: Sequence[Candidate], now_ms: int, window: int) -> dict[str, Standing]:
    found: dict[str, Standing] = {}
    out = [job for job in group if job.status in ("QUEUED", "IN_PROGRESS")]
    block_out = next((job for job in out if job.mode == "BLOCK_ON_ERROR"), None)
    left = window - sum(job.mode == "NEXT_ON_ERROR" for job in out)
    first: Candidate | None = None  # what stands before and is not over
    trouble: Candidate | None = None  # what stands before and failed, for now or for good
    wall: Candidate | None = None  # what stands before and must have its turn first
    for job in group:
        own = _by_itself(job, now_ms)
        if own is not None and job.status == "PENDING" and own.because == "it has expired":
            found[job.id] = own
            continue
        verdict = own or GOES
        if own is None and job.mode == "NEXT_ON_ERROR":
            if wall is not None:
                verdict = Standing(False, f"{wall.id} must have its turn first")
            elif left < 1:
                verdict = Standing(False, f"{window} jobs of its group are out already")
            else:
                left -= 1
        elif own is None and job.mode == "BLOCK_ON_ERROR":
            stop = trouble or first or block_out
            if stop is not None:
                verdict = Standing(False, f"{stop.id} stands before it and is {_state(stop, now_ms)}")
        found[job.id] = verdict

        waits = job.status == "PENDING" and (job.scheduled_ms or 0) > now_ms
        early, retrying = waits and not job.tried, waits and bool(job.tried)
        unordered = job.mode == "IMMEDIATE"
        if wall is None and not unordered:
            open_block = job.mode == "BLOCK_ON_ERROR" and (
                job in out or (job.status == "PENDING" and not retrying and trouble is None)
            )
            if early or open_block:
                wall = job
        if first is None and not (early and unordered and job.attempt == 1):
            first = job
        if trouble is None and (job.status == "ERROR" or retrying):
            trouble = job
    return found


def _state(job: Candidate, now_ms: int) -> str:
    waits = job.status == "PENDING" and (job.scheduled_ms or 0) > now_ms
    return ("waiting for a retry" if job.tried else "waiting for its time") if waits else job.status


def plan(
    jobs: Sequence[Candidate], *, now_ms: int, window: int, room: int | None, shards: int, pools: Mapping[str, int]
) -> list[tuple[int, int, str, int]]:
    """(shard, seq, job, attempt), as `spark.transforms.plan` makes them."""
    found = verdicts(jobs, now_ms=now_ms, window=window)
    free = sorted((job for job in jobs if found[job.id].goes), key=lambda job: job.place)
    going = _within(free, pools)[:room]
    next_in: dict[int, int] = {}
    rows = []
    for job in going:
        shard = zlib.crc32((job.msg_group or job.id).encode()) % shards
        next_in[shard] = next_in.get(shard, 0) + 1
        rows.append((shard, next_in[shard], job.id, job.attempt))
    return rows


def _within(free: Sequence[Candidate], pools: Mapping[str, int]) -> list[Candidate]:
    """Keep each pool to its number. In a group, nothing goes behind a job that its pool has no room for."""
    left, cut, going = dict(pools), set(), []
    for job in free:
        ordered = job.mode != "IMMEDIATE" and bool(job.msg_group)
        left[job.pool] = left.get(job.pool, len(free)) - 1
        if left[job.pool] < 0:
            cut.update([job.msg_group] if ordered else [])
        elif not (ordered and job.msg_group in cut):
            going.append(job)
    return going


def job_of(row: Mapping[str, Any]) -> Candidate:
    return Candidate(**{name: row[name] for name in Candidate.__dataclass_fields__ if name in row})
