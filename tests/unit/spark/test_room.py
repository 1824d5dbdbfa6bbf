"""What the queue takes, and of which pools."""

from __future__ import annotations

import pytest

from spark.room import PoolDue, Room, room_for


def test_one_pool_takes_no_more_than_it_leaves() -> None:
    assert room_for({"A": PoolDue(1000, 0)}, depth=0, max_depth=200) == Room(100, {"A": 100})
    assert room_for({"A": PoolDue(900, 100)}, depth=100, max_depth=200) == Room(0, {"A": 0})


def test_one_that_has_little_due_is_not_limited() -> None:
    pools = {"A": PoolDue(900, 100), "B": PoolDue(3, 0)}
    assert room_for(pools, depth=100, max_depth=200) == Room(3, {"A": 0})


def test_however_many_pools_are_slow_the_next_one_finds_room() -> None:
    out: dict[str, int] = {}
    for code in "ABCDEF":
        room = room_for({code: PoolDue(10_000, 0)}, depth=sum(out.values()), max_depth=6400)
        assert room.jobs == room.pools[code]
        out[code] = room.jobs
    assert list(out.values()) == [3200, 1600, 800, 400, 200, 100]


def test_pools_together_take_no_more_than_there_is_room_for() -> None:
    pools = {code: PoolDue(40, 0) for code in "ABCDE"}
    assert room_for(pools, depth=0, max_depth=100) == Room(100)


@pytest.mark.parametrize(("out", "may"), [(94, 0), (82, 0), (80, 10)])
def test_a_little_room_is_waited_for_until_it_is_worth_a_plan(out: int, may: int) -> None:
    assert room_for({"A": PoolDue(50, out)}, depth=100, max_depth=200).jobs == may


def test_the_last_few_need_no_more_room_than_they_take() -> None:
    assert room_for({"A": PoolDue(3, 94)}, depth=100, max_depth=200) == Room(3)


def test_what_was_lost_on_its_way_takes_no_room() -> None:
    assert room_for({"A": PoolDue(50, 10_000)}, depth=0, max_depth=200) == Room(50)


def test_a_queue_deeper_than_it_should_be_takes_nothing() -> None:
    assert room_for({"A": PoolDue(50, 0)}, depth=300, max_depth=200) == Room(0, {"A": 0})
