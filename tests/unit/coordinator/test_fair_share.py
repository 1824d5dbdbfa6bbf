"""How many queues a coordinator takes, and which it gives up."""

from __future__ import annotations

import pytest

from coordinator.fair_share import Surplus, fair_share

TTL_MS = 10_000
OWNED = ["d", "b", "a", "c"]


@pytest.mark.parametrize(
    ("queues", "alive", "share"),
    [
        (4, {"coordinator-1"}, 4),
        (4, {"coordinator-1", "coordinator-2"}, 2),
        (5, {"coordinator-1", "coordinator-2"}, 3),
        (1, {"coordinator-1", "coordinator-2"}, 1),
        (0, {"coordinator-1"}, 0),
        (4, {"coordinator-1", "worker-1", "syncer-1"}, 4),
        (4, {"coordinator-1", "off-coordinator-2"}, 4),
    ],
)
def test_the_queues_are_shared_among_the_coordinators_that_are_not_switched_off(
    queues: int, alive: set[str], share: int
) -> None:
    assert fair_share(queues, alive) == share


def test_no_queue_is_left_over_and_none_counted_twice() -> None:
    for coordinators in range(1, 8):
        share = fair_share(20, {f"coordinator-{i}" for i in range(coordinators)})
        assert share * coordinators >= 20 > (share - 1) * coordinators


@pytest.fixture
def surplus() -> Surplus:
    return Surplus(patience_ms=TTL_MS / 2)


def test_what_is_beyond_the_share_goes_once_that_lasts(surplus: Surplus) -> None:
    assert surplus.to_give_up(OWNED, 2, 0.0) == []
    assert surplus.to_give_up(OWNED, 2, TTL_MS / 2) == []
    assert surplus.to_give_up(OWNED, 2, TTL_MS / 2 + 1) == ["c", "d"], "the last by name, whoever has them"


def test_a_coordinator_that_was_missed_for_a_moment_moves_nothing(surplus: Surplus) -> None:
    surplus.to_give_up(OWNED, 2, 0.0)
    assert surplus.to_give_up(OWNED, 4, TTL_MS / 4) == []
    assert surplus.to_give_up(OWNED, 2, TTL_MS / 2 + 1) == []
    assert surplus.to_give_up(OWNED, 2, TTL_MS + 2) == ["c", "d"]


def test_while_what_was_given_up_ends_nothing_more_goes(surplus: Surplus) -> None:
    surplus.to_give_up(OWNED, 2, 0.0)
    assert surplus.to_give_up(OWNED, 2, TTL_MS) == ["c", "d"]
    assert surplus.to_give_up(OWNED, 2, TTL_MS + 1) == []
