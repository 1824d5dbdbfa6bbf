"""What a worker did, counted for its heartbeat and for metrics; and why deliveries fail, logged now and then."""

from __future__ import annotations

from collections import Counter
from typing import assert_never

from fleet.alarms import Alarms
from fleet.clock import Clock
from fleet.delivery.origin import origin_of
from fleet.metrics.counters import Counters
from fleet.outcome import (
    Delivered,
    Failed,
    NotSent,
    Outcome,
    OutcomeName,
    Refenced,
    Rejected,
    Uncallable,
    Unreachable,
)
from fleet.state.warnings import Severity
from workers.complain import Complaints
from workers.lease import LaneLease


class Account:
    """What one worker did, over all its pools."""

    def __init__(self, *, clock: Clock, alarms: Alarms) -> None:
        self._clock = clock
        self._alarms = alarms
        self._complaints = Complaints(clock=clock)
        self.outcomes: Counter[str] = Counter()
        """Over all pools; `counters` has them by pool."""
        self.counters = Counters()
        self.counts: Counter[str] = Counter()

    def claimed(self, lease: LaneLease) -> None:
        now_ms, code = self._clock.wall_ms(), lease.link.pool.code
        for entry in lease.entries:
            self.counters.observe("wait", code, max(0.0, (now_ms - entry.submitted_ms) / 1000))

    def rate_waits(self, code: str, lanes: int) -> None:
        self.counters.add("pool", code, "RATE_LIMITED", lanes)

    def lost_lease(self) -> None:
        self.counts["leases_lost"] += 1

    def refused(self, settlements: int) -> None:
        self.counts["settlements_refused"] += settlements

    def ended(self, lease: LaneLease, outcome: Outcome, seconds: float) -> None:
        """A delivery ended. Called before it is settled, while the lease still stands at its message."""
        code, name = lease.link.pool.code, name_of(outcome)
        self.outcomes[name] += 1
        self.counters.add("pool", code, name)
        if not isinstance(outcome, NotSent):
            self.counters.add("pool", code, "ms", round(seconds * 1000))
            self.counters.observe("delivery", code, seconds)
        if not isinstance(outcome, Delivered):
            self._complain(lease, outcome)

    def _complain(
        self, lease: LaneLease, outcome: Failed | Unreachable | NotSent | Uncallable | Refenced | Rejected
    ) -> None:
        code, target = lease.link.pool.code, lease.entry.target
        match outcome:
            case NotSent(reason=reason, warn=True):
                self._say(lease, reason)
                self._warn("CONFIGURATION", "ERROR", f"messages of {code} are not sent: {reason}")
            case Failed(reason=reason, unexpected=True):
                self._say(lease, reason)
                self._warn("PROCESSING", "WARN", f"messages of {code} meet an error of ours: {reason}")
            case Failed(reason=reason) | Unreachable(reason=reason) | NotSent(reason=reason):
                self._say(lease, reason)
            case Uncallable(reason=reason):
                self._say(lease, f"put aside, {reason}")
                text = f"messages of {code} are put aside (fleet dead list): {reason}"
                self._warn("CONFIGURATION", "ERROR", text)
            case Refenced():
                self._say(lease, "refused as fenced (412)")
                self._warn("FENCED", "WARN", f"{origin_of(target)} refuses groups of {code} as fenced (412)")
            case Rejected(reason=reason, critical=critical):
                self._say(lease, f"rejected for good, {reason}")
                text = f"{origin_of(target)} rejects messages of {code}: {reason}"
                self._warn("CONFIGURATION", "CRITICAL" if critical else "ERROR", text)
            case _:
                assert_never(outcome)

    def _say(self, lease: LaneLease, reason: str) -> None:
        self._complaints.add(lease.link.pool.code, lease.entry.message_id, reason)

    def _warn(self, category: str, severity: Severity, text: str) -> None:
        self._alarms.add(category, severity, text, logged=True)


def name_of(outcome: Outcome) -> OutcomeName:
    match outcome:
        case Delivered():
            return "SUCCESS"
        case Rejected() | Uncallable():
            return "ERROR_CONFIG"
        case Failed():
            return "ERROR_PROCESS"
        case Unreachable():
            return "ERROR_CONNECTION"
        case NotSent():
            return "NOT_SENT"
        case Refenced():
            return "FENCED"
        case _:
            assert_never(outcome)
