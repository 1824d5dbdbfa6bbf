"""What a new owner takes for lost, and in which order it comes again."""

from __future__ import annotations

from typing import Any, cast

from coordinator.return_ import expect, whose_order_is_ours
from coordinator.takeover import standing_nowhere, unchanged
from fleet.state.scripts import SEP
from tests.unit.coordinator.standins import Queue, tracked


def item(broker_id: str, token: str) -> str:
    """An outcome in an outbox: which message, and how it was settled."""
    return SEP.join(["q", broker_id, token, "a"])


def test_what_its_pool_does_not_queue_and_no_outbox_holds_is_lost() -> None:
    share = [tracked("queued"), tracked("settled"), tracked("lost")]
    assert standing_nowhere("q", share, [True, False, False], [item("settled", "1")]) == [share[2]]


def test_an_outcome_of_an_earlier_token_does_not_keep_a_message() -> None:
    share = [tracked("m", token="2")]
    assert standing_nowhere("q", share, [False], [item("m", "1")]) == share
    assert standing_nowhere("q", share, [False], [item("m", "2")]) == []


def test_what_changed_between_two_looks_is_not_lost() -> None:
    lost = [tracked("same"), tracked("acked"), tracked("anew"), tracked("gone")]
    now = [tracked("same"), tracked("acked", state="a"), tracked("anew", token="2"), None]
    assert unchanged(lost, now) == [lost[0]]


async def test_what_is_lost_comes_again_in_the_order_in_which_it_was_taken() -> None:
    lost = [tracked("third", token="10"), tracked("first", token="8"), tracked("second", token="9")]
    again = await expect(cast(Any, None), cast(Any, Queue([])), lost)
    assert [one.broker_id for one in again] == ["first", "second", "third"]


def test_only_messages_whose_order_is_ours_to_keep_are_waited_for() -> None:
    lost = [
        tracked("a", order="r"),
        tracked("b"),
        tracked("c", pool="Q", group="h", order="hhold"),
        tracked("d", order="r"),
    ]
    assert whose_order_is_ours("q", lost) == {
        "P": [("r", "g", f"q{SEP}a", ""), ("r", "g", f"q{SEP}d", "")],
        "Q": [("h", "h", f"q{SEP}c", "hold")],
    }
