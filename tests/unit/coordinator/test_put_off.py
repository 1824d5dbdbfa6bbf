"""For how long what a full pool refuses is put off."""

from __future__ import annotations

import pytest

from coordinator.put_off import Limits, PutOff

CAPACITY, CONCURRENCY = 50, 4


class HandClock:
    def __init__(self) -> None:
        self.now_ms = 0.0

    def boot_ms(self) -> float:
        return self.now_ms

    def wall_ms(self) -> int:
        raise AssertionError("it may step")


CLOCK = HandClock()


@pytest.fixture
def put_off() -> PutOff:
    return PutOff(lambda _: Limits(CAPACITY, CONCURRENCY), CLOCK)


def refused(put_off: PutOff, *, idle: bool) -> int:
    """A refusal once what was refused before has come again, after the pool was idle or busy all the time."""
    CLOCK.now_ms += 31_000
    put_off.seen("P", CAPACITY - CONCURRENCY + idle)
    seconds = put_off.seconds("P")
    put_off.refused("P")
    return seconds


def test_a_pool_that_always_has_work_puts_off_for_half_a_minute(put_off: PutOff) -> None:
    assert [refused(put_off, idle=False) for _ in range(3)] == [30, 30, 30]


def test_one_that_ran_out_of_work_puts_off_for_half_as_long_each_time_and_for_a_second_at_least(
    put_off: PutOff,
) -> None:
    assert [refused(put_off, idle=True) for _ in range(8)] == [30, 15, 8, 4, 2, 1, 1, 1]


def test_with_work_all_the_time_again_it_goes_back_to_half_a_minute(put_off: PutOff) -> None:
    for _ in range(4):
        refused(put_off, idle=True)
    assert [refused(put_off, idle=False) for _ in range(10)] == [4, 5, 6, 8, 10, 12, 15, 18, 23, 28]
    assert refused(put_off, idle=False) == 30


def test_idle_without_a_refusal_counts_once(put_off: PutOff) -> None:
    refused(put_off, idle=False)
    for _ in range(5):
        put_off.seen("P", CAPACITY)
    assert refused(put_off, idle=True) == 15


def test_each_pool_by_itself(put_off: PutOff) -> None:
    refused(put_off, idle=True)
    refused(put_off, idle=True)
    assert (put_off.seconds("P"), put_off.seconds("OTHER")) == (15, 30)


def test_many_calls_refused_in_a_moment_count_once(put_off: PutOff) -> None:
    for _ in range(4):
        refused(put_off, idle=True)
    assert put_off.seconds("P") == 4
    CLOCK.now_ms += 31_000
    for _ in range(9):
        put_off.refused("P")
    assert put_off.seconds("P") == 5
