"""May the next message of a lease go out now?"""

from __future__ import annotations

import pytest

from fleet.state.pool import Policy
from tests.unit.workers.links import FAR_MS, Link, lease_on
from workers.exchange import PERMIT_MS
from workers.gate import Gate, gate
from workers.lease import LaneLease

NOW_MS, DEADLINE_MS = 1_000.0, 9_000.0


def lease(*, at: int = 0, attempt: int = 0, asked_ms: float = FAR_MS, **state: bool) -> LaneLease:
    """A lease of three messages, in a pool where nothing is out of the ordinary but what is said here."""
    link = Link(policy=Policy(rated=state.pop("rated", False)))
    one = lease_on(link, 3, deadline_ms=DEADLINE_MS, permit_ms=asked_ms + PERMIT_MS)
    one.at, one.attempt, one.yielding = at, attempt, state.pop("yielding", False)
    vars(link).update(state)
    return one


def test_a_lease_whose_time_is_over_delivers_nothing() -> None:
    assert gate(lease(), DEADLINE_MS) is Gate.LAPSED
    assert gate(lease(attempt=1), DEADLINE_MS) is Gate.LAPSED
    assert gate(lease(), DEADLINE_MS - 1) is Gate.OPEN


@pytest.mark.parametrize("reason", ["yielding", "paused", "stopping", "rated"])
def test_between_two_messages_the_rest_goes_back_and_before_the_first_nothing_does(reason: str) -> None:
    assert gate(lease(at=1, **{reason: True}), NOW_MS) is Gate.RELEASE
    assert gate(lease(at=0, **{reason: True}), NOW_MS) is Gate.OPEN
    assert gate(lease(at=1, attempt=1, **{reason: True}), NOW_MS) is Gate.OPEN, "what has begun is finished"


def test_a_delivery_begins_no_later_than_its_permit_allows() -> None:
    assert gate(lease(asked_ms=NOW_MS - PERMIT_MS + 1), NOW_MS) is Gate.OPEN
    assert gate(lease(asked_ms=NOW_MS - PERMIT_MS), NOW_MS) is Gate.RELEASE
    assert gate(lease(asked_ms=NOW_MS - PERMIT_MS, attempt=1), NOW_MS) is Gate.OPEN, "another attempt needs none"


def test_between_two_messages_one_waits_while_redis_does_not_answer() -> None:
    assert gate(lease(at=1, stalled=True), NOW_MS) is Gate.WAIT
    assert gate(lease(stalled=True), NOW_MS) is Gate.OPEN
