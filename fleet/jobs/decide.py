"""What follows from a delivery: a pure function from the outcome to the job's next state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_never

from fleet.jobs.records import Job, Status
from fleet.outcome import Delivered, Failed, Outcome, OutcomeName, Refenced, Rejected, Unreachable

RETRY_DELAYS_S = (5, 15, 30, 60, 120)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    status: Status
    outcome: OutcomeName
    error: str | None = None
    scheduled_ms: int | None = None

    def changes(self, job: Job, now_ms: int) -> dict[str, Any]:
        """The columns of the job that change."""
        common = {"status": self.status, "claimed_until_ms": None, "last_error": self.error}
        if self.status != "PENDING":
            return {**common, "completed_ms": now_ms}
        again = {"attempt": job.attempt + 1, "scheduled_ms": self.scheduled_ms}
        return {**common, **again, "queued_ms": None, "queued_epoch": None}


def decide(job: Job, outcome: Outcome, *, failed_before: int, now_ms: int) -> Verdict:
    """`failed_before`: how many earlier attempts of the job came to an end, none of them a good one."""
    match outcome:
        case Delivered():
            return Verdict(status="COMPLETED", outcome="SUCCESS")
        case Rejected():
            # Tried again like any other: retries are counted here, and a target that is being deployed says 404.
            return _failed(job, "ERROR_CONFIG", outcome.reason, 0, failed_before, now_ms)
        case Failed():
            return _failed(job, "ERROR_PROCESS", outcome.reason, outcome.retry_s or 0, failed_before, now_ms)
        case Unreachable():
            return _failed(job, "ERROR_CONNECTION", outcome.reason, 0, failed_before, now_ms)
        case Refenced():
            return _failed(job, "FENCED", "HTTP 412: a newer epoch has come by", 0, failed_before, now_ms)
        case _:
            assert_never(outcome)


def _failed(job: Job, name: OutcomeName, reason: str, asked_s: int, failed_before: int, now_ms: int) -> Verdict:
    if failed_before >= job.max_retries:
        return Verdict(status="ERROR", outcome=name, error=reason)
    delay_s = max(RETRY_DELAYS_S[min(failed_before, len(RETRY_DELAYS_S) - 1)], asked_s)
    due_ms = now_ms + delay_s * 1000
    if job.expires_ms is not None and job.expires_ms <= due_ms:
        # Said now, not when it would be due: what waits behind it need not wait for that.
        return Verdict(status="EXPIRED", outcome=name, error=reason)
    return Verdict(status="PENDING", outcome=name, error=reason, scheduled_ms=due_ms)
