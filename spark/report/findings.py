"""What a report tells, as plain data: the page, the plots and the headline are made of this alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]

STEPS_MS = (
    1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000, 4 * 3_600_000, 12 * 3_600_000, 86_400_000,
    7 * 86_400_000, 30 * 86_400_000,
)  # fmt: skip
_MOST_STEPS = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    summary: Row
    """Of all deliveries: the columns of `spark.transforms.report.measured`."""
    endpoints: Sequence[Row] = ()
    pools: Sequence[Row] = ()
    timeline: Sequence[Row] = ()
    """Without the buckets in which nothing was sent."""
    step_ms: int = STEPS_MS[0]
    tries: Sequence[Row] = ()
    statuses: Mapping[str, int] = field(default_factory=dict)
    """Where the jobs of the store stand now."""
    judged: Sequence[Row] = ()
    """For each witness of the order: how many messages it says something about, in how many groups."""
    inversions: Sequence[Row] = ()
    """The first messages that came out of order."""
    inverted: int = 0
    """How many there are, each counted once however many witnesses saw it."""
    generated_ms: int
    since_ms: int = 0
    sources: str
    """What was read, for people."""

    @property
    def messages(self) -> int:
        return sum(row["messages"] for row in self.tries)

    @property
    def delivered(self) -> int:
        return sum(row["delivered"] for row in self.tries)

    @property
    def waiting(self) -> int:
        return sum(self.statuses.get(status, 0) for status in ("PENDING", "QUEUED", "IN_PROGRESS"))

    @property
    def judged_messages(self) -> int:
        return max((row["judged"] for row in self.judged), default=0)

    def headline(self) -> dict[str, Any]:
        """What `fleet report --json` prints."""
        shown = {
            "messages": self.messages,
            "delivered": self.delivered,
            "attempts": self.summary["attempts"],
            "failedAttempts": self.summary["failed"],
            "retries": self.summary["retried"],
            "duplicates": self.summary["duplicates"],
            "outOfOrder": self.inverted,
            "judgedInOrder": self.judged_messages,
        }
        for share in ("p50", "p95", "p99"):
            shown[f"{share}Ms"] = self.summary[f"{share}_ms"]
            shown[f"wait{share.upper()}Ms"] = self.summary[f"wait_{share}_ms"]
        return {**shown, "fromMs": self.summary["from_ms"], "toMs": self.summary["to_ms"], "jobs": dict(self.statuses)}


NOTHING: Row = {
    "attempts": 0, "delivered": 0, "failed": 0, "error_process": 0, "error_connection": 0, "error_config": 0,
    "not_sent": 0, "fenced": 0, "retried": 0, "duplicates": 0, "out_of_order": 0, "most_frequent_error": None,
    "from_ms": None, "to_ms": None, "p50_ms": None, "p95_ms": None, "p99_ms": None, "wait_p50_ms": None,
    "wait_p95_ms": None, "wait_p99_ms": None,
}  # fmt: skip
"""The summary of no deliveries."""


def step_for(from_ms: int | None, to_ms: int | None) -> int:
    """How long one bar of the plots is: fine enough to see something, coarse enough to be a bar."""
    span_ms = 0 if from_ms is None or to_ms is None else to_ms - from_ms
    return next((step for step in STEPS_MS if span_ms / step <= _MOST_STEPS), STEPS_MS[-1])
