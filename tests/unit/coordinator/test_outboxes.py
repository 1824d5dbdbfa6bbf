"""Which outcomes the leader copies, and to which queues."""

from __future__ import annotations

from coordinator.outboxes import by_queue, still_standing
from fleet.state.scripts import SEP


def test_of_a_living_worker_only_calls_that_stood_there_before_are_copied() -> None:
    calls = {7: ["seven"], 8: ["eight"]}
    assert still_standing(calls, frozenset({6, 7})) == {7: ["seven"]}
    assert still_standing(calls, frozenset()) == {}


def test_outcomes_go_to_their_queues_in_the_order_in_which_they_were_settled() -> None:
    items = [SEP.join(parts) for parts in (("q", "1", "11", "a"), ("other", "2", "22", "n500"), ("q", "3", "33", "a"))]
    assert by_queue(items) == {"q": [("1", "11", "a"), ("3", "33", "a")], "other": [("2", "22", "n500")]}
