"""What follows from a delivery: a pure function from the outcome to the job's next state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, assert_never

from fleet.jobs.records import Job, Status
from fleet.outcome import Delivered, Failed, NotSent, Outcome, OutcomeName, Refenced, Rejected, Uncallable, Unreachable

RETRY_DELAYS_S = (5, 15, 30, 60, 120)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextState:
    status: Status
    outcome: OutcomeName
    error: str | None = None
    scheduled_ms: int | None = None

    COLUMNS: ClassVar = (
        "status", "claimed_until_ms", "last_error", "completed_ms", "attempt", "scheduled_ms", "queued_ms",
        "queued_epoch",
    )  # fmt: skip

    def changes(self, job: Job, now_ms: int) -> dict[str, Any]:
        """What `COLUMNS` of the job become."""
        again = self.status == "PENDING"
        return {
            "status": self.status,
            "claimed_until_ms": None,
            "last_error": self.error,
            "completed_ms": None if again else now_ms,
            "attempt": job.attempt + 1 if again else job.attempt,
            "scheduled_ms": self.scheduled_ms if again else job.scheduled_ms,
            "queued_ms": None if again else job.queued_ms,
            "queued_epoch": None if again else job.queued_epoch,
        }


def decide(job: Job, outcome: Outcome, *, failed_before: int, now_ms: int) -> NextState:
    """`failed_before`: how many earlier attempts of the job failed."""
    match outcome:
        case Delivered():
            return NextState(status="COMPLETED", outcome="SUCCESS")
        case Rejected() | Uncallable():
            # Tried again like any other: retries are counted here, and a target that is being deployed says 404.
            return _failed(job, "ERROR_CONFIG", outcome.reason, 0, failed_before, now_ms)
        case Failed():
            return _failed(job, "ERROR_PROCESS", outcome.reason, outcome.retry_s or 0, failed_before, now_ms)
        case Unreachable():
            return _failed(job, "ERROR_CONNECTION", outcome.reason, 0, failed_before, now_ms)
        case NotSent():
            # Counted all the same: a rule may stay for ever, but a job must not.
            return _failed(job, "NOT_SENT", outcome.reason, 0, failed_before, now_ms)
        case Refenced():
            return _failed(job, "FENCED", "HTTP 412: a newer epoch has come by", 0, failed_before, now_ms)
        case _:
            assert_never(outcome)


def _failed(job: Job, name: OutcomeName, reason: str, asked_s: int, failed_before: int, now_ms: int) -> NextState:
    if failed_before >= job.max_retries:
        return NextState(status="ERROR", outcome=name, error=reason)
    delay_s = max(RETRY_DELAYS_S[min(failed_before, len(RETRY_DELAYS_S) - 1)], asked_s)
    due_ms = now_ms + delay_s * 1000
    if job.expires_ms is not None and job.expires_ms <= due_ms:
        # It expires now, not when it would be due: what waits behind it need not wait for that.
        return NextState(status="EXPIRED", outcome=name, error=reason)
    return NextState(status="PENDING", outcome=name, error=reason, scheduled_ms=due_ms)
