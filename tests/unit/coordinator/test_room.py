"""How much is asked for, as a decision alone: what is known of the pools comes in, a number or a wait comes out."""

from __future__ import annotations

import pytest

from coordinator.put_off import PoolLimits
from coordinator.room import PATIENCE_MS, REGAIN, Need, Patience, Poll, Room, Wait, decide, need_of, starves
from fleet.state.pool import SHARE

FAST = Room(share=0.5, free=120, limits=PoolLimits(160, 8), short_ms=None, spent_ms=0.0)
BUSY = Room(share=0.5, free=3, limits=PoolLimits(160, 8), short_ms=10.0, spent_ms=0.0)
SLOW = Room(share=0.5, free=0, limits=PoolLimits(50, 2), short_ms=PATIENCE_MS, spent_ms=0.0)


def test_no_more_is_asked_for_than_the_narrowest_pool_with_room_takes_of_twice_its_share() -> None:
    narrow = Room(share=0.1, free=10, limits=PoolLimits(160, 8), short_ms=None, spent_ms=0.0)
    assert decide({"A": FAST, "B": narrow}, 500, starving=False) == Poll(40)
    assert decide({"A": FAST, "B": narrow}, 30, starving=False) == Poll(30)


def test_a_pool_with_room_is_asked_for_one_at_least() -> None:
    none = Room(share=1.0, free=0, limits=PoolLimits(160, 8), short_ms=None, spent_ms=0.0)
    assert decide({"A": none}, 500, starving=False) == Poll(1)


def test_a_pool_that_is_busy_is_waited_for_and_one_that_is_slow_is_not() -> None:
    assert decide({"A": FAST, "B": BUSY}, 500, starving=False) == Wait(1.0, ("B",), False)
    assert decide({"A": FAST, "B": SLOW}, 500, starving=False) == Poll(120)


def test_while_another_starves_a_busy_pool_is_waited_for_as_long_as_its_patience_lasts() -> None:
    half_spent = Room(share=0.5, free=3, limits=PoolLimits(160, 8), short_ms=10.0, spent_ms=PATIENCE_MS / 2)
    all_spent = Room(share=0.5, free=3, limits=PoolLimits(160, 8), short_ms=10.0, spent_ms=PATIENCE_MS)
    assert decide({"A": FAST, "B": half_spent}, 500, starving=True) == Wait(0.5, ("B",), True)
    assert decide({"A": FAST, "B": all_spent}, 500, starving=True) == Poll(120)
    assert decide({"A": FAST, "B": all_spent}, 500, starving=False) == Wait(1.0, ("B",), False)


def test_with_all_pools_full_a_few_are_asked_for_now_and_then() -> None:
    assert decide({"A": SLOW, "B": SLOW}, 500, starving=False, may_probe=True) == Poll(SHARE)
    assert decide({"A": SLOW, "B": SLOW}, 500, starving=False) == Wait(1.0, (), False)
    assert decide({"A": SLOW, "B": BUSY}, 500, starving=False, may_probe=True) == Wait(1.0, ("B",), False)


@pytest.mark.parametrize(("rooms", "seconds"), [({"A": FAST, "B": BUSY}, 0.1), ({"B": BUSY}, 1.0)])
def test_where_a_pool_may_run_out_of_groups_its_wait_is_a_glance(rooms: dict[str, Room], seconds: float) -> None:
    assert decide(rooms, 500, starving=False, by_groups=True) == Wait(seconds, ("B",), False)


def test_a_pool_that_is_known_to_have_enough_room_is_not_asked() -> None:
    assert need_of(0.5, 100, 160, known=50) is None
    assert need_of(0.5, 100, 160, known=49) == Need(worth=40, tell_at=40)


@pytest.mark.parametrize(
    ("share", "capacity", "need"),
    [
        (0.5, 10_000, Need(worth=SHARE, tell_at=250)),
        (0.02, 10_000, Need(worth=10, tell_at=10)),
        (0.5, 80, Need(worth=20, tell_at=20)),
        (0.5, 3, Need(worth=1, tell_at=1)),
    ],
    ids=["a share of a batch", "what it would get", "a quarter of a small pool", "one at least"],
)
def test_the_room_that_makes_a_poll_worthwhile(share: float, capacity: int, need: Need) -> None:
    assert need_of(share, 500, capacity, known=0) == need


def test_a_pool_starves_with_less_than_it_works_on_at_once_or_twice_that_in_groups() -> None:
    limits = PoolLimits(160, 8)
    assert [starves(limits, to_do, by_groups=False) for to_do in (7, 8)] == [True, False]
    assert [starves(limits, to_do, by_groups=True) for to_do in (15, 16)] == [True, False]


def test_patience_is_spent_by_waiting_and_comes_back_slowly() -> None:
    patience = Patience()
    assert patience.spent_ms("P", 0.0) == 0.0
    patience.spend("P", 1000.0, 1600.0)
    assert patience.spent_ms("P", 1600.0) == 600.0
    assert patience.spent_ms("P", 2600.0) == pytest.approx(600.0 - 1000.0 * REGAIN)
    assert patience.spent_ms("OTHER", 1600.0) == 0.0
    # What it had regained before the wait stays regained.
    patience.spend("P", 2600.0, 2700.0)
    assert patience.spent_ms("P", 2700.0) == pytest.approx(700.0 - 1000.0 * REGAIN)
    assert patience.spent_ms("P", 1_000_000.0) == 0.0
