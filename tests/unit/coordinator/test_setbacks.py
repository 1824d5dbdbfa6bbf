"""When a queue that failed is tried again, and how often the log hears of it."""

from __future__ import annotations

import pytest

from coordinator.setbacks import AFTER_FENCED_MS, Setbacks
from tests.clocks import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def setbacks(clock: HandClock) -> Setbacks:
    return Setbacks(clock)


def pause_ms(setbacks: Setbacks, clock: HandClock) -> float:
    """Lets time pass until it may be tried again."""
    began_ms = clock.now_ms
    while not setbacks.may_begin("q"):
        clock.now_ms += 500
    return clock.now_ms - began_ms


def test_a_queue_that_fails_again_and_again_is_tried_later_and_later(setbacks: Setbacks, clock: HandClock) -> None:
    assert setbacks.may_begin("q")
    pauses = []
    for _ in range(7):
        setbacks.failed("q", "its broker is away")
        pauses.append(pause_ms(setbacks, clock))
    assert pauses == [2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]


def test_once_it_was_opened_it_begins_anew(setbacks: Setbacks, clock: HandClock) -> None:
    for _ in range(3):
        setbacks.failed("q", "its broker is away")
    pause_ms(setbacks, clock)
    setbacks.opened("q")
    assert setbacks.failed("q", "its broker is away"), "that is news again"
    assert pause_ms(setbacks, clock) == 2000


def test_the_log_hears_of_each_reason_once(setbacks: Setbacks) -> None:
    reasons = ["away", "away", "refused", "refused", "away"]
    assert [setbacks.failed("q", reason) for reason in reasons] == [True, False, True, False, True]
    assert setbacks.failed("other", "away")


def test_who_was_fenced_tries_again_soon_and_it_is_no_failure(setbacks: Setbacks, clock: HandClock) -> None:
    for _ in range(3):
        setbacks.fenced("q")
        assert pause_ms(setbacks, clock) == AFTER_FENCED_MS
    setbacks.failed("q", "away")
    assert pause_ms(setbacks, clock) == 2000


def test_each_queue_by_itself(setbacks: Setbacks) -> None:
    setbacks.failed("q", "away")
    assert (setbacks.may_begin("q"), setbacks.may_begin("other")) == (False, True)
