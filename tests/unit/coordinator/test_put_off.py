"""For how long what a full pool refuses is put off."""

from __future__ import annotations

import pytest

from coordinator.put_off import PoolLimits, PutOff
from tests.clocks import HandClock

CAPACITY, CONCURRENCY = 50, 4


CLOCK = HandClock()
SLOW = {"SLOW"}


@pytest.fixture
def put_off() -> PutOff:
    return PutOff(lambda _: PoolLimits(CAPACITY, CONCURRENCY), SLOW.__contains__, CLOCK)


def passes(ms: int) -> None:
    """And the wall clock steps back each time: nobody may go by it."""
    CLOCK.now_ms += ms
    CLOCK.step_ms -= ms + 3_600_000


def refused(put_off: PutOff, *, idle: bool) -> int:
    """A refusal once what was refused before has come again, after the pool was idle or busy all the time."""
    passes(1000 * put_off.seconds("P") + 1000)
    put_off.seen("P", CAPACITY - CONCURRENCY + idle)
    seconds = put_off.seconds("P")
    put_off.refused("P")
    return seconds


def test_a_pool_that_always_has_work_puts_off_for_twice_as_long_each_time_up_to_half_a_minute(put_off: PutOff) -> None:
    assert [refused(put_off, idle=False) for _ in range(8)] == [1, 1, 2, 4, 8, 16, 30, 30]


def test_one_that_ran_out_of_work_puts_off_for_half_as_long_and_for_a_second_at_least(put_off: PutOff) -> None:
    for _ in range(8):
        refused(put_off, idle=False)
    assert [refused(put_off, idle=True) for _ in range(6)] == [15, 7, 3, 1, 1, 1]


def test_idle_without_a_refusal_counts_once(put_off: PutOff) -> None:
    for _ in range(8):
        refused(put_off, idle=False)
    for _ in range(5):
        put_off.seen("P", CAPACITY)
    assert refused(put_off, idle=True) == 15


def test_many_calls_refused_in_a_moment_count_once(put_off: PutOff) -> None:
    for _ in range(4):
        refused(put_off, idle=False)
    assert put_off.seconds("P") == 8
    passes(9_000)
    for _ in range(9):
        put_off.refused("P")
    assert put_off.seconds("P") == 16


def test_each_pool_by_itself(put_off: PutOff) -> None:
    for _ in range(4):
        refused(put_off, idle=False)
    assert (put_off.seconds("P"), put_off.seconds("OTHER")) == (8, 1)


def test_once_what_it_refused_is_taken_for_long_it_begins_anew(put_off: PutOff) -> None:
    for _ in range(8):
        refused(put_off, idle=False)
    assert put_off.seconds("P") == 30
    passes(71_000)
    assert put_off.seconds("P") == 1
    assert [refused(put_off, idle=False) for _ in range(4)] == [1, 1, 2, 4]


def test_one_that_is_known_to_be_slow_begins_with_half_a_minute(put_off: PutOff) -> None:
    assert put_off.seconds("SLOW") == 30
    put_off.refused("SLOW")
    put_off.seen("SLOW", CAPACITY)
    assert put_off.seconds("SLOW") == 15
