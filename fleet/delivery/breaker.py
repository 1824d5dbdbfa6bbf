"""The circuit breaker of one origin, as one worker sees it: a state machine without clock, Redis or network.

    closed ──5 of the last 10 failed──▶ open ──5 s──▶ half-open ──3 probes succeeded──▶ closed
                                          ▲               │
                                          └─probe failed──┘

Numbers and rules are the seed's. What the other workers find out arrives through `adopt`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fleet.delivery.reply import Reply
from fleet.state.breakers import RULES, BreakerRules, Shared, StateName

PROBED_RETRY_MS = 100
"""While a probe is under way, here or elsewhere, a request is held back this long before it asks again."""
OVERTAKEN_MS = 10_000
"""Replies and messages overtake each other by less, as a call is given up sooner. If one is older by more, Redis's
clock has stepped back, and it is believed: otherwise a breaker would stay as it is for as long as the step."""
OWN_PERMIT = ""
"""Instead of a permit's epoch: we gave ourselves the permit, because Redis does not answer."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Send it."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Send it, and record it as the probe: it holds the fleet's permit."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The breaker is half-open: hold the message and ask for the permit (`Breakers.ask`)."""


@dataclass(frozen=True, slots=True)
class Open:
    """Do not send it. Nothing was attempted."""

    retry_after_ms: float
    probed: bool = False
    """It is half-open, and a probe is finding out whether the endpoint works again."""


Admit = Pass | Probe | Ask | Open
PASS, PROBE, ASK = Pass(), Probe(), Ask()


class Change(Enum):
    """What a recorded request did to its breaker."""

    NONE = "nothing that others must know"
    OPENED = "the window has too many failures"
    PROBE_SUCCEEDED = "one success more"
    PROBE_FAILED = "open again"


def spoke(reply: Reply) -> bool | None:
    """Whether the endpoint works: True for any answer but a 5xx (429 too: it is there, and says what it wants).

    None if no endpoint was asked.
    """
    if reply.error in ("FORBIDDEN_ADDRESS", "BAD_URL"):
        return None
    if reply.error is not None:
        return False
    return not 500 <= reply.status <= 599


class Breaker:
    """Times are the worker's own, in ms, passed in."""

    __slots__ = (
        "_as_of_ms",
        "_failures",
        "_probing_since_ms",
        "_quiet_until_ms",
        "_recorded",
        "_rules",
        "_tripped",
        "asking",
        "permit",
        "probing",
        "successes",
        "until_ms",
        "used_ms",
    )

    def __init__(self, rules: BreakerRules = RULES) -> None:
        self._rules = rules
        self._failures = 0  # one bit per request of the window, the newest lowest
        self._recorded = 0
        self._tripped = False
        self._as_of_ms = 0
        self._quiet_until_ms = 0.0
        self.until_ms = 0.0
        self.successes = 0
        self.asking = False
        self.permit: str | None = None
        self.probing = False
        self._probing_since_ms = 0.0
        self.used_ms = 0.0

    def state(self, now_ms: float) -> StateName:
        if not self._tripped:
            return "closed"
        return "open" if now_ms < self.until_ms else "half-open"

    def admit(self, now_ms: float) -> Admit:
        if not self._tripped:
            return PASS
        if now_ms < self.until_ms:
            return Open(self.until_ms - now_ms)
        if self.probing and now_ms - self._probing_since_ms >= self._rules.probe_limit_ms:
            self.end_probe()
        if self.probing or self.asking:
            return Open(PROBED_RETRY_MS, probed=True)
        if self.permit is not None:
            self.probing, self._probing_since_ms = True, now_ms
            return PROBE
        if now_ms < self._quiet_until_ms:
            return Open(self._quiet_until_ms - now_ms, probed=True)
        return ASK

    def record(self, ok: bool, now_ms: float, *, probe: bool) -> Change:
        if self._tripped:
            # Requests from before it opened say nothing new, and a probe that lost its permit no longer counts.
            return self._judge(ok, now_ms) if probe and self.probing else Change.NONE
        self._failures = (self._failures << 1 | (not ok)) & self._rules.mask
        self._recorded = min(self._recorded + 1, self._rules.window)
        if self._recorded < self._rules.window:
            return Change.NONE
        if self._failures.bit_count() < self._rules.failure_ratio * self._rules.window:
            return Change.NONE
        self.open_for(self._rules.open_ms, now_ms)
        return Change.OPENED

    def _judge(self, ok: bool, now_ms: float) -> Change:
        self.end_probe()
        if not ok:
            self.open_for(self._rules.open_ms, now_ms)
            return Change.PROBE_FAILED
        self.successes += 1
        if self.successes >= self._rules.successes_to_close:
            self.close()
        return Change.PROBE_SUCCEEDED

    def grant(self, permit: str) -> None:
        """A probe may be sent. If one is under way already, it goes on under this permit."""
        self.permit = permit

    def end_probe(self) -> None:
        """The permit is used up, or given back."""
        self.permit, self.probing = None, False

    def open_for(self, ms: float, now_ms: float) -> None:
        self._tripped = True
        self.until_ms = now_ms + ms
        self.successes = 0
        self.end_probe()

    def close(self) -> None:
        if self._tripped:
            # The failures that opened it are over: a new window.
            self._tripped, self._failures, self._recorded, self.successes = False, 0, 0, 0
            self._quiet_until_ms = 0.0
            self.end_probe()

    def adopt(self, shared: Shared, now_ms: float) -> bool:
        """Believe what Redis says, unless we know something newer. Replies and messages overtake each other."""
        if self._as_of_ms - OVERTAKEN_MS < shared.as_of_ms < self._as_of_ms:
            return False
        self._as_of_ms = shared.as_of_ms
        match shared.tag:
            case "closed":
                self.close()
            case "open":
                self.open_for(shared.left_ms, now_ms)
            case "half" | "taken" | "granted":
                self._tripped = True
                self.until_ms = min(self.until_ms, now_ms)
                self.successes = shared.successes
                if shared.tag == "taken":
                    self._quiet_until_ms = now_ms + min(shared.left_ms, PROBED_RETRY_MS)
            case _:
                pass
        return True
