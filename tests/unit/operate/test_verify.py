"""The checker, on journals made by hand: each thing it can find, and what it must not take for one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.operate.verify import Judgement, verify


class Run:
    """Writes journals. Time passes by 1 ms a record."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._now = 1000.0
        self._seq = 0
        self.names: list[str] = []

    def _write(self, name: str, **record: Any) -> None:
        if name not in self.names:
            self.names.append(name)
        self._now += 1
        with (self._folder / name).open("a") as file:
            file.write(json.dumps({**record, "t": self._now}) + "\n")

    def send(self, *ids: str, group: str | None = "g", to: str = "sent", pool: str | None = None) -> Run:
        more = {} if pool is None else {"pool": pool}
        for message_id in ids:
            self._seq += 1
            self._write(to, kind="sent", id=message_id, group=group, seq=self._seq, **more)
        return self

    def start(self, message_id: str, epoch: int | None = 1, group: str | None = "g", at: str = "endpoint") -> Run:
        self._write(at, kind="start", id=message_id, group=group, epoch=epoch, status=None)
        return self

    def end(
        self, message_id: str, epoch: int | None = 1, group: str | None = "g", status: int = 200, at: str = "endpoint"
    ) -> Run:
        self._write(at, kind="end", id=message_id, group=group, epoch=epoch, status=status)
        return self

    def deliver(
        self, *ids: str, epoch: int = 1, group: str | None = "g", status: int = 200, at: str = "endpoint"
    ) -> Run:
        for message_id in ids:
            self.start(message_id, epoch, group, at).end(message_id, epoch, group, status, at)
        return self

    def verdict(self, **options: Any) -> Judgement:
        return verify([self._folder / name for name in self.names], **options)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def found(verdict: Judgement) -> dict[str, int]:
    names = ("lost", "duplicates", "inversions", "overlaps", "overlaps_by_fenced", "unknown", "unfinished", "refused")
    return {name: getattr(verdict, name) for name in names if getattr(verdict, name)}


def test_a_run_in_order_is_good(run: Run) -> None:
    verdict = run.send("a", "b", "c").send("x", "y", group="h").deliver("a", "b").deliver("x", group="h").deliver("c")
    result = verdict.deliver("y", group="h").verdict()
    assert result.table().endswith("\nok")
    assert found(result) == {}
    assert (result.sent, result.groups, result.accepted, result.requests) == (5, 2, 5, 5)
    assert (result.ok, result.exit_code, result.examples) == (True, 0, {})


def test_groups_overlap_each_other_freely(run: Run) -> None:
    run.send("a").send("x", group="h").start("a").start("x", group="h").end("a").end("x", group="h")
    assert run.verdict().ok


def test_a_message_never_accepted_is_lost(run: Run) -> None:
    result = run.send("a", "b", "c").deliver("a", "c").verdict()
    assert found(result) == {"lost": 1}
    assert result.exit_code == 1
    assert result.examples == {"lost": "b, group g, seq 2"}


@pytest.mark.parametrize("status", [199, 300, 400, 412, 429, 500, 503])
def test_an_answer_that_is_no_2xx_is_no_acceptance(run: Run, status: int) -> None:
    assert run.send("a").deliver("a", status=status).verdict().lost == 1


def test_a_request_that_only_began_is_no_acceptance(run: Run) -> None:
    assert found(run.send("a").start("a").verdict()) == {"lost": 1, "unfinished": 1}


def test_a_retry_after_a_failure_is_neither_duplicate_nor_inversion(run: Run) -> None:
    assert found(run.send("a", "b").deliver("a", status=500).deliver("a", "b", epoch=2).verdict()) == {}


def test_duplicates_are_counted_and_judged_by_what_is_allowed(run: Run) -> None:
    run.send("a", "b").deliver("a", "b").deliver("a", "a", "b", epoch=2)
    result = run.verdict()
    assert found(result) == {"duplicates": 3}
    assert result.exit_code == 0
    assert result.examples["duplicates"].startswith("a, group g, again at ")
    assert run.verdict(duplicates_allowed=3).exit_code == 0
    assert run.verdict(duplicates_allowed=2).exit_code == 1
    assert run.verdict(duplicates_allowed=0).problems == ["3 duplicates, more than 0"]


def test_a_first_acceptance_after_a_later_message_is_an_inversion(run: Run) -> None:
    result = run.send("a", "b", "c").deliver("a", "c", "b").verdict()
    assert found(result) == {"inversions": 1}
    assert result.exit_code == 1
    assert result.examples == {"inversions": "b (seq 2) after c (seq 3), group g"}


def test_every_message_that_was_overtaken_is_an_inversion(run: Run) -> None:
    assert run.send("a", "b", "c", "d").deliver("d", "a", "b", "c").verdict().inversions == 3


def test_a_repeated_acceptance_is_no_inversion(run: Run) -> None:
    assert found(run.send("a", "b", "c").deliver("a", "b", "a", "b", "c").verdict()) == {"duplicates": 2}


def test_order_is_that_of_the_ends_and_not_of_the_starts(run: Run) -> None:
    run.send("a", "b").start("b").start("a").end("a").end("b")
    assert run.verdict().inversions == 0


def test_messages_without_a_group_have_no_order_and_overlap_freely(run: Run) -> None:
    run.send("a", "b", group=None).start("b", group=None).start("a", group=None).end("b", group=None).end(
        "a", group=None
    )
    result = run.verdict()
    assert found(result) == {}
    assert result.groups == 0


def test_groups_of_two_producers_have_no_common_order(run: Run) -> None:
    assert run.send("a", to="one").send("b", to="two").deliver("b", "a").verdict().ok


def test_a_group_of_two_pools_is_two_groups(run: Run) -> None:
    run.send("a", "b", pool="P").send("x", "y", pool="Q")
    run.start("x").start("a").end("x").end("a").deliver("y", "b")
    result = run.verdict()
    assert (found(result), result.groups) == ({}, 2)


def test_a_group_of_one_pool_is_judged_as_ever_beside_another_pool(run: Run) -> None:
    run.send("a", "b", pool="P").send("x", pool="Q").start("b").start("x").start("a").end("b").end("x").end("a")
    assert found(run.verdict()) == {"overlaps": 1, "inversions": 1}


def test_a_message_that_another_pool_took_keeps_its_place_in_its_own(run: Run) -> None:
    run.send("a", "b", pool="P")
    for message_id, pool in (("b", "DEFAULT-POOL"), ("a", "P")):
        for kind, status in (("start", None), ("end", 200)):
            run._write("endpoint", kind=kind, id=message_id, group="g", epoch=1, status=status, pool=pool)
    assert found(run.verdict()) == {"inversions": 1}


def test_where_the_producer_names_no_pool_the_delivery_does(run: Run) -> None:
    run.send("a", "b")
    for kind, status in (("start", None), ("end", 200)):
        for message_id, pool in (("b", "Q"), ("a", "P")):
            run._write("endpoint", kind=kind, id=message_id, group="g", epoch=1, status=status, pool=pool)
    assert found(run.verdict()) == {}


def test_two_requests_of_one_epoch_at_once_are_an_overlap(run: Run) -> None:
    result = run.send("a", "b").start("a").start("b").end("a").end("b").verdict()
    assert found(result) == {"overlaps": 1}
    assert result.exit_code == 1
    assert result.examples["overlaps"].startswith("b (epoch 1) began at 1004.0 while a (epoch 1) was in progress")


def test_one_message_twice_at_once_is_an_overlap(run: Run) -> None:
    assert found(run.send("a").start("a").start("a").end("a").end("a").verdict()) == {"overlaps": 1, "duplicates": 1}


def test_a_request_that_was_left_by_an_older_epoch_is_told_apart(run: Run) -> None:
    result = run.send("a", "b").start("a", 1).start("a", 2).end("a", 2).end("a", 1).deliver("b", epoch=2).verdict()
    assert found(result) == {"overlaps_by_fenced": 1, "duplicates": 1}
    assert result.exit_code == 1
    assert "while a (epoch 1)" in result.examples["overlaps_by_fenced"]


def test_a_stale_request_that_begins_within_a_newer_one_is_an_overlap(run: Run) -> None:
    assert found(run.send("a", "b").start("a", 2).start("b", 1).end("a", 2).end("b", 1).verdict()) == {"overlaps": 1}


def test_beside_an_older_epoch_one_of_its_own_makes_it_an_overlap(run: Run) -> None:
    run.send("a", "b", "c").start("a", 1).start("b", 2).start("c", 2).end("a", 1).end("b", 2).end("c", 2)
    assert found(run.verdict()) == {"overlaps_by_fenced": 1, "overlaps": 1}


def test_requests_without_an_epoch_overlap_as_equals(run: Run) -> None:
    assert run.send("a", "b").start("a", None).start("b", None).end("a", None).end("b", None).verdict().overlaps == 1


def test_a_late_request_that_is_refused_is_no_overlap(run: Run) -> None:
    run.send("a", "b").start("b", 2).start("a", 1).end("a", 1, status=412).end("b", 2).deliver("a", epoch=3)
    result = run.verdict()
    assert (result.overlaps, result.overlaps_by_fenced, result.refused, result.inversions) == (0, 0, 1, 1)


def test_a_request_refused_before_it_began_is_counted_as_refused_only(run: Run) -> None:
    result = run.send("a").end("a", 1, status=412).deliver("a", epoch=2).verdict()
    assert found(result) == {"refused": 1}
    assert result.requests == 1


def test_an_overlap_that_never_ended_is_one(run: Run) -> None:
    assert found(run.send("a", "b").start("a").start("b").end("a").verdict()) == {
        "overlaps": 1,
        "unfinished": 1,
        "lost": 1,
    }


def test_one_after_the_other_is_no_overlap_although_journals_are_several(run: Run) -> None:
    run.send("a", "b", "c").deliver("a", at="one").deliver("b", at="two").deliver("c", at="one")
    assert run.verdict().ok
    run.send("d", "e").start("d", at="one").start("e", at="two").end("d", at="one").end("e", at="two")
    assert found(run.verdict()) == {"overlaps": 1}


def test_an_inversion_is_seen_across_journals(run: Run) -> None:
    assert run.send("a", "b").deliver("b", at="one").deliver("a", at="two").verdict().inversions == 1


def test_journals_may_be_named_in_any_order(run: Run) -> None:
    run.send("a", "b", "c").deliver("a", "b", "c")
    run.names.reverse()
    assert run.verdict().ok


def test_what_nobody_sent_is_told_and_not_judged(run: Run) -> None:
    result = run.send("a").deliver("a").deliver("stray", "stray").verdict()
    assert found(result) == {"unknown": 1, "duplicates": 1}
    assert result.ok


def test_journals_that_prove_nothing_are_no_good(run: Run, tmp_path: Path) -> None:
    assert verify([]).exit_code == 1
    (tmp_path / "empty").touch()
    assert verify([tmp_path / "empty"]).problems == ["no message was sent"]
    assert run.deliver("a").verdict().exit_code == 1


def test_a_torn_last_line_is_as_if_it_had_not_been_written(run: Run, tmp_path: Path) -> None:
    run.send("a", "b").deliver("a", "b")
    path = tmp_path / "endpoint"
    path.write_bytes(path.read_bytes()[:-10])
    assert found(run.verdict()) == {"lost": 1, "unfinished": 1}


def test_a_verdict_is_told_as_json_and_as_a_table(run: Run) -> None:
    result = run.send("a", "b", "c").deliver("a", "c", "a").verdict(duplicates_allowed=0)
    told = json.loads(json.dumps(result.to_json()))
    assert told["ok"] is False
    assert told["problems"] == ["1 lost", "1 duplicate, more than 0"]
    assert (told["sent"], told["accepted"], told["duplicatesAllowed"], told["overlapsByFenced"]) == (3, 2, 0, 0)
    assert set(told["examples"]) == {"lost", "duplicates"}
    lines = result.table().splitlines()
    assert any(line.startswith("lost ") and "b, group g, seq 2" in line for line in lines)
    assert lines[-1] == "FAILED: 1 lost; 1 duplicate, more than 0"
