"""What a worker did, counted; and of what people are warned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest

from fleet.metrics.exposition import SUM_US
from fleet.outcome import (
    Delivered,
    Failed,
    NotSent,
    Outcome,
    Refenced,
    Rejected,
    Uncallable,
    Unreachable,
)
from tests.clocks import HandClock
from tests.unit.workers.links import Link, lease_on
from workers.account import Account, name_of

URL, ORIGIN = "http://a.example:81/orders?id=7", "http://a.example:81"
Warned = tuple[str, str, str]

TABLE: list[tuple[Outcome, str, str, Warned | None]] = [
    # Counted as; said in the log; of category and severity, and of what.
    (Delivered(), "SUCCESS", "", None),
    (Failed("HTTP 500", status=500), "ERROR_PROCESS", "HTTP 500", None),
    (Failed("HTTP 429", status=429), "ERROR_PROCESS", "HTTP 429", None),
    (
        Failed("of ours", unexpected=True),
        "ERROR_PROCESS",
        "of ours",
        ("PROCESSING", "WARN", "messages of P meet an error of ours: of ours"),
    ),
    (Unreachable("refused"), "ERROR_CONNECTION", "refused", None),
    (NotSent("its breaker is open"), "NOT_SENT", "its breaker is open", None),
    (
        NotSent("forbidden", warn=True),
        "NOT_SENT",
        "forbidden",
        ("CONFIGURATION", "ERROR", "messages of P are not sent: forbidden"),
    ),
    (
        Uncallable("no URL"),
        "ERROR_CONFIG",
        "put aside, no URL",
        ("CONFIGURATION", "ERROR", "messages of P are put aside (fleet dead list): no URL"),
    ),
    (
        Refenced(),
        "FENCED",
        "refused as fenced (412)",
        ("FENCED", "WARN", f"{ORIGIN} refuses groups of P as fenced (412)"),
    ),
    (
        Rejected(404, "HTTP 404"),
        "ERROR_CONFIG",
        "rejected for good, HTTP 404",
        ("CONFIGURATION", "ERROR", f"{ORIGIN} rejects messages of P: HTTP 404"),
    ),
    (
        Rejected(501, "HTTP 501", critical=True),
        "ERROR_CONFIG",
        "rejected for good, HTTP 501",
        ("CONFIGURATION", "CRITICAL", f"{ORIGIN} rejects messages of P: HTTP 501"),
    ),
]
OUTCOMES = [row[0] for row in TABLE]


class Scene:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.warned: list[Warned] = []
        self.account = Account(clock=self.clock, alarms=cast(Any, SimpleNamespace(add=self._warn)))

    def _warn(self, category: str, severity: str, text: str, *, logged: bool) -> None:
        assert logged, "the complaint has it in the log"
        self.warned.append((category, severity, text))

    def ended(self, outcome: Outcome) -> None:
        self.account.ended(lease_on(Link(), 2, target=URL), outcome, 0.25)


def test_no_outcome_is_without_a_row() -> None:
    assert {type(outcome) for outcome in OUTCOMES} == set(get_args(Outcome))


@pytest.mark.parametrize(("outcome", "name", "said", "warned"), TABLE, ids=map(repr, OUTCOMES))
def test_an_outcome_is_counted_and_whatever_is_no_success_is_said_and_some_of_it_warned_of(
    outcome: Outcome, name: str, said: str, warned: Warned | None, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    scene.ended(outcome)
    assert (name_of(outcome), scene.account.outcomes) == (name, {name: 1})
    assert scene.account.counters.of(("pool", "P"))[name] == 1
    assert caplog.messages == ([f"mg0 in P not delivered: {said}"] if said else [])
    assert scene.warned == ([warned] if warned else [])


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_only_what_was_sent_took_time(outcome: Outcome) -> None:
    scene = Scene()
    scene.ended(outcome)
    counters, sent = scene.account.counters, not isinstance(outcome, NotSent)
    assert counters.of(("pool", "P")).get("ms") == (250 if sent else None)
    assert counters.of(("delivery", "P")).get(SUM_US) == (250_000 if sent else None)


@pytest.mark.parametrize(("waited_ms", "counted_ms"), [(1500, 1500), (0, 0), (-3000, 0)])
def test_what_is_claimed_has_waited_and_never_for_less_than_no_time(waited_ms: int, counted_ms: int) -> None:
    scene = Scene()
    scene.account.claimed(lease_on(Link(), 2, submitted_ms=scene.clock.now_ms - waited_ms))
    counts = scene.account.counters.of(("wait", "P"))
    assert counts[SUM_US] == 2 * counted_ms * 1000


def test_leases_lost_settlements_refused_and_waits_for_a_rate_are_counted() -> None:
    account = Scene().account
    account.lost_lease()
    account.refused(3)
    account.rate_waits("P", 4)
    assert account.counts == {"leases_lost": 1, "settlements_refused": 3}
    assert account.counters.of(("pool", "P")) == {"RATE_LIMITED": 4}
