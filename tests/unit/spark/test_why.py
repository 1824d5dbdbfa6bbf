"""What holds a job back, case by case. (`tests/spark/test_plan.py` compares it with what Spark plans.)"""

from __future__ import annotations

from typing import Any

import pytest

from spark.why import GOES, Candidate, plan, verdicts

NOW_MS = 1_000_000
LATER: dict[str, Any] = {"scheduled_ms": NOW_MS + 90_000}
AGAIN: dict[str, Any] = {**LATER, "attempt": 2, "tried": 1}


def job(name: str, mode: str = "NEXT_ON_ERROR", status: str = "PENDING", **more: Any) -> Candidate:
    defaults = {"msg_group": "g", "sequence": 99, "created_ms": int(name[1:]), "attempt": 1}
    return Candidate(id=name, mode=mode, status=status, **{**defaults, **more})


def held(*jobs: Candidate, window: int = 10) -> dict[str, str]:
    """Why those that do not go do not."""
    found = verdicts(jobs, now_ms=NOW_MS, window=window)
    assert found.keys() == {one.id for one in jobs}
    return {name: standing.because for name, standing in found.items() if not standing.goes}


@pytest.mark.parametrize("group", ["g", "", None])
@pytest.mark.parametrize(
    ("more", "because"),
    [
        ({"status": "QUEUED"}, "it is QUEUED"),
        ({"expires_ms": NOW_MS}, "it has expired"),
        ({"expires_ms": NOW_MS, **LATER}, "it has expired"),
        (LATER, "it is to go in 1 min 30 s"),
        (AGAIN, "it is to be tried again in 1 min 30 s"),
    ],
)
def test_it_may_be_its_own_fault(group: str | None, more: dict[str, Any], because: str) -> None:
    assert held(job("j1", **{"msg_group": group, **more})) == {"j1": because}


def test_one_that_is_due_this_moment_goes_and_one_that_expires_later_too() -> None:
    jobs = [job("j1", scheduled_ms=NOW_MS), job("j2", expires_ms=NOW_MS + 1)]
    assert verdicts(jobs, now_ms=NOW_MS, window=10) == {"j1": GOES, "j2": GOES}


def test_without_a_group_nobody_waits_for_another() -> None:
    assert held(job("j1", "BLOCK_ON_ERROR", "ERROR", msg_group=None), job("j2", "BLOCK_ON_ERROR", msg_group=None)) == {
        "j1": "it is ERROR"
    }


def test_of_those_that_go_on_at_an_error_a_window_is_out_at_once() -> None:
    jobs = [job("j1", status="QUEUED"), job("j2"), job("j3"), job("j4", "IMMEDIATE")]
    assert held(*jobs, window=2) == {"j1": "it is QUEUED", "j3": "2 jobs of its group are out already"}


def test_one_that_blocks_waits_for_all_before_it_and_what_is_behind_it_waits_for_its_turn() -> None:
    jobs = [job("j1"), job("j2", "BLOCK_ON_ERROR"), job("j3"), job("j4", "IMMEDIATE")]
    assert held(*jobs) == {"j2": "j1 stands before it and is PENDING", "j3": "j2 must have its turn first"}


@pytest.mark.parametrize("mode", ["NEXT_ON_ERROR", "BLOCK_ON_ERROR", "IMMEDIATE"])
def test_an_error_holds_back_those_that_block_and_no_others(mode: str) -> None:
    jobs = [job("j1", mode, "ERROR"), job("j2"), job("j3", "BLOCK_ON_ERROR"), job("j4")]
    found = held(*jobs)
    assert found.keys() == {"j1", "j3"}
    assert found["j3"] == "j1 stands before it and is ERROR"


@pytest.mark.parametrize("trouble", [{"status": "ERROR"}, AGAIN], ids=["for good", "for now"])
def test_a_barrier_that_is_itself_held_by_an_error_holds_back_nothing(trouble: dict[str, Any]) -> None:
    jobs = [job("j1", **trouble), job("j2", "BLOCK_ON_ERROR"), job("j3"), job("j4")]
    assert held(*jobs).keys() == {"j1", "j2"}


def test_of_several_before_one_that_blocks_the_one_that_failed_is_named() -> None:
    jobs = [job("j1", status="QUEUED"), job("j2", status="ERROR"), job("j3", "BLOCK_ON_ERROR")]
    assert held(*jobs)["j3"] == "j2 stands before it and is ERROR"


def test_what_waits_for_its_time_must_have_its_turn_and_what_waits_for_a_retry_had_it() -> None:
    assert held(job("j1", **LATER), job("j2"))["j2"] == "j1 must have its turn first"
    assert held(job("j1", **AGAIN), job("j2")).keys() == {"j1"}


def test_those_that_block_are_told_what_the_one_before_them_waits_for() -> None:
    behind = job("j2", "BLOCK_ON_ERROR")
    assert held(job("j1", **LATER), behind)["j2"] == "j1 stands before it and is waiting for its time"
    assert held(job("j1", **AGAIN), behind)["j2"] == "j1 stands before it and is waiting for a retry"


@pytest.mark.parametrize("mode", ["NEXT_ON_ERROR", "BLOCK_ON_ERROR"])
def test_nobody_waits_for_an_immediate_one_whose_time_is_to_come(mode: str) -> None:
    assert held(job("j1", "IMMEDIATE", **LATER), job("j2", mode)).keys() == {"j1"}


def test_what_has_expired_holds_nobody() -> None:
    assert held(job("j1", "BLOCK_ON_ERROR", expires_ms=1), job("j2", "BLOCK_ON_ERROR")) == {"j1": "it has expired"}


def test_one_that_blocks_waits_for_another_that_is_out_even_behind_it() -> None:
    jobs = [job("j1", "BLOCK_ON_ERROR"), job("j2", "BLOCK_ON_ERROR", "IN_PROGRESS")]
    assert held(*jobs).keys() == {"j1", "j2"}


def test_the_sequence_goes_before_the_age() -> None:
    assert held(job("j1", "BLOCK_ON_ERROR"), job("j2", sequence=1)).keys() == {"j1"}


def planned(*jobs: Candidate, room: int | None = None, **pools: int) -> list[str]:
    return [name for _, _, name, _ in plan(jobs, now_ms=NOW_MS, window=9, room=room, shards=4, pools=pools)]


def test_a_plan_keeps_pools_to_their_room_and_lets_nothing_of_a_group_go_behind_what_has_none() -> None:
    jobs = [job("j1", pool="P"), job("j2", pool="P"), job("j3", pool="Q"), job("j4", pool="Q", msg_group="h")]
    assert planned(*jobs, P=1) == ["j1", "j4"]
    assert planned(*jobs) == ["j1", "j2", "j3", "j4"]
    assert planned(*jobs, room=2) == ["j1", "j2"]
    assert planned(job("j1", pool="P"), job("j2", "IMMEDIATE", pool="Q"), P=0) == ["j2"], "it asks for no order"


def test_a_plan_numbers_the_rows_of_a_shard_and_keeps_a_group_in_one() -> None:
    jobs = [job(f"j{number}", msg_group=f"g{number % 3}") for number in range(9)]
    rows = plan(jobs, now_ms=NOW_MS, window=9, room=None, shards=2, pools={})
    by_shard: dict[int, list[int]] = {}
    for shard, seq, _, _ in rows:
        by_shard.setdefault(shard, []).append(seq)
    assert all(seqs == list(range(1, len(seqs) + 1)) for seqs in by_shard.values())
    group_of = {one.id: one.msg_group for one in jobs}
    assert len({(group_of[name], shard) for shard, _, name, _ in rows}) == 3
