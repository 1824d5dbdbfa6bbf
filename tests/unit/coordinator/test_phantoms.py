"""Which of the tracked messages the patrol looks for, and which it forgets."""

from __future__ import annotations

from coordinator.phantoms import PENDING_DELETE_MS, older_than, past_redelivery
from tests.unit.coordinator.standins import tracked

NOW_MS = PENDING_DELETE_MS + 1000


def test_what_may_be_on_its_way_to_its_pool_is_left_alone() -> None:
    page = [tracked("a", tracked_ms=99), tracked("young", tracked_ms=100), tracked("b", pool="Q", tracked_ms=1)]
    assert older_than(100, page) == {"P": [page[0]], "Q": [page[2]]}


def test_an_acked_message_is_remembered_for_as_long_as_a_source_may_show_it_again() -> None:
    page = [
        tracked("old", state="a", token="7", tracked_ms=999),
        tracked("young", state="a", tracked_ms=1000),
        tracked("under way", tracked_ms=999),
    ]
    assert past_redelivery(NOW_MS, page) == [("old", "7")]
