"""What `fleet status` calls a problem, in words."""

from __future__ import annotations

import pytest

from fleet.operate.behind_breakers import Blocked
from fleet.operate.status import Status, problems
from fleet.state.breakers import BreakerView
from fleet.state.observe import LeaseView
from fleet.state.registry import ConfigRevision

OPEN = BreakerView("http://a.example", "open", 4200, 0, 1, 0, "")
HALF = BreakerView("http://a.example", "half-open", 0, 0, 7, 0, "")
PROBED = BreakerView("http://a.example", "half-open", 0, 1, 7, 0, "worker-h-1")


def problems_of(*blocked: Blocked) -> list[str]:
    records = [{"role": role, "name": role} for role in ("syncer", "coordinator", "worker")]
    return problems(
        Status(
            leader=LeaseView("c", "1"), config=ConfigRevision("1", b"{}", 0), records=records, pools=[], queues=[],
            servers=[], blocked=list(blocked),
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("blocked", "words"),
    [
        (
            Blocked(OPEN, 182, {"A": 12, "B": 1}),
            "is open (not closed for 3 min 2 s), next probe in 4 s;"
            " behind it: pool A (12 messages), pool B (1 message)",
        ),
        (
            Blocked(OPEN, 182, {"A": 1000}, is_whole=False),
            "is open (not closed for 3 min 2 s), next probe in 4 s; behind it: pool A (at least 1,000 messages)",
        ),
        (
            Blocked(HALF, 3, perhaps=("A",), is_whole=False),
            "is half-open (not closed for 3 s, opened 7 times), the next message for it is a probe;"
            " behind it, perhaps: pool A",
        ),
        (Blocked(PROBED, 3), "is half-open (not closed for 3 s, opened 7 times), worker-h-1 probes it now"),
        (
            Blocked(OPEN, 1, {f"P{i}": 9 - i for i in range(7)}),
            "is open (not closed for 1 s), next probe in 4 s; behind it: pool P0 (9 messages), pool P1 (8 messages),"
            " pool P2 (7 messages), pool P3 (6 messages), pool P4 (5 messages) and 2 more",
        ),
    ],
)
def test_an_origin_that_is_left_alone_is_a_problem(blocked: Blocked, words: str) -> None:
    assert problems_of(blocked) == [f"http://a.example fails: its circuit breaker {words}"]


def test_of_many_origins_the_first_are_named_and_the_others_counted() -> None:
    found = problems_of(*[Blocked(OPEN, 1)] * 7)
    assert len(found) == 6
    assert found[-1] == "2 other circuit breakers are not closed either (see fleet breakers)"
