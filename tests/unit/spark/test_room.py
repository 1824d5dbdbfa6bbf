"""What the queue takes, and of which pools."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.room import PoolDue, QueueRoom, room_for


def test_one_pool_takes_no_more_than_it_leaves() -> None:
    assert room_for({"A": PoolDue(1000, 0)}, depth=0, max_depth=200) == QueueRoom(100, {"A": 100})
    assert room_for({"A": PoolDue(900, 100)}, depth=100, max_depth=200) == QueueRoom(0, {"A": 0})


def test_one_that_has_little_due_is_not_limited() -> None:
    pools = {"A": PoolDue(900, 100), "B": PoolDue(3, 0)}
    assert room_for(pools, depth=100, max_depth=200) == QueueRoom(3, {"A": 0})


def test_however_many_pools_are_slow_one_after_the_other_the_next_finds_room() -> None:
    out: dict[str, int] = {}
    for code in "ABCDEF":
        room = room_for({code: PoolDue(10_000, 0)}, depth=sum(out.values()), max_depth=6400)
        assert room.jobs == room.pools[code]
        out[code] = room.jobs
    assert list(out.values()) == [3200, 1600, 800, 400, 200, 100]


def test_slow_pools_together_leave_as_much_as_each_of_them_takes() -> None:
    pools = {code: PoolDue(300_000, 0) for code in "ABC"}
    assert room_for(pools, depth=0, max_depth=400_000) == QueueRoom(300_000, dict.fromkeys("ABC", 100_000))
    later = {code: PoolDue(200_000, 100_000) for code in "ABC"} | {"NEW": PoolDue(300, 0)}
    assert room_for(later, depth=300_000, max_depth=400_000) == QueueRoom(300, dict.fromkeys("ABC", 0))


@given(
    due=st.lists(st.tuples(st.integers(1, 500), st.integers(0, 300)), min_size=1, max_size=6),
    max_depth=st.integers(1, 1000),
)
def test_no_pool_has_more_out_than_is_left_free_and_nobody_who_asks_for_little_is_limited(
    due: list[tuple[int, int]], max_depth: int
) -> None:
    pools = {str(number): PoolDue(*one) for number, one in enumerate(due)}
    depth = sum(pool.out for pool in pools.values())
    room = room_for(pools, depth=depth, max_depth=max_depth)
    assert 0 <= room.jobs <= max(0, max_depth - depth)
    if depth:
        left = max_depth - depth - room.jobs
        takes = {code: room.pools.get(code, pool.due) for code, pool in pools.items()}
        assert sum(takes.values()) == room.jobs
        assert all(pools[code].out + took <= left for code, took in takes.items() if took)
    else:
        assert room.jobs > 0, "a queue that is empty takes something"


@pytest.mark.parametrize(("out", "may"), [(94, 0), (82, 0), (80, 10)])
def test_a_little_room_is_waited_for_until_it_is_worth_a_plan(out: int, may: int) -> None:
    assert room_for({"A": PoolDue(50, out)}, depth=100, max_depth=200).jobs == may


def test_the_last_few_need_no_more_room_than_they_take() -> None:
    assert room_for({"A": PoolDue(3, 94)}, depth=100, max_depth=200) == QueueRoom(3)


def test_what_was_lost_on_its_way_takes_no_room() -> None:
    assert room_for({"A": PoolDue(50, 10_000)}, depth=0, max_depth=200) == QueueRoom(50)


@pytest.mark.parametrize("max_depth", [1, 2])
def test_a_queue_too_small_to_be_shared_is_used_all_the_same(max_depth: int) -> None:
    pools = {"A": PoolDue(9, 0), "B": PoolDue(9, 0)}
    assert room_for(pools, depth=0, max_depth=max_depth) == QueueRoom(max_depth)


def test_a_queue_deeper_than_it_should_be_takes_nothing() -> None:
    assert room_for({"A": PoolDue(50, 0)}, depth=300, max_depth=200) == QueueRoom(0, {"A": 0})
