"""Jobs of a target that is shut come again one after the other."""

from __future__ import annotations

from fleet.processing.admit import Turns


def test_few_come_as_soon_as_they_may_and_never_two_at_once() -> None:
    turns = Turns()
    due = [turns.next("http://a", now_ms=1000, not_before_ms=6000) for _ in range(4)]
    assert due == [6000, 6010, 6020, 6030]
    assert turns.next("http://b", now_ms=1000, not_before_ms=2000) == 2000
    assert turns.next("http://a", now_ms=9000, not_before_ms=10_000) == 10_000


def test_however_many_there_are_none_waits_for_longer_than_a_minute_or_its_own_time() -> None:
    turns = Turns()
    due = [turns.next("http://a", now_ms=0, not_before_ms=1000) for _ in range(20_000)]
    assert due == sorted(due)
    assert due[-1] == 60_000
    assert turns.next("http://a", now_ms=0, not_before_ms=90_000) == 90_000


def test_targets_whose_jobs_are_long_gone_take_no_memory() -> None:
    turns = Turns()
    for number in range(5000):
        turns.next(f"http://{number}", now_ms=number * 10_000, not_before_ms=number * 10_000 + 1000)
    assert len(turns._last) <= 1000
