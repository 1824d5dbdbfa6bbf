"""Where the messages of the next batch go, judging by the last."""

from __future__ import annotations

import pytest

from coordinator.spread import REMEMBERED, Spread


@pytest.fixture
def spread() -> Spread:
    return Spread()


def test_nothing_is_known_before_some_have_gone_somewhere(spread: Spread) -> None:
    assert spread.shares({"P"}) == {}


def test_a_pool_gets_the_share_that_it_got(spread: Spread) -> None:
    spread.taken("P", 30)
    spread.taken("Q", 10)
    assert spread.shares({"P", "Q", "R"}) == {"P": 0.75, "Q": 0.25}


def test_pools_that_an_earlier_owner_fed_are_known(spread: Spread) -> None:
    spread.found({"P"})
    spread.found({"P", "Q"})
    assert spread.shares({"P", "Q"}) == {"P": pytest.approx(2 / 3), "Q": pytest.approx(1 / 3)}


def test_what_went_to_a_pool_that_is_gone_tells_nothing(spread: Spread) -> None:
    spread.taken("GONE", 90)
    spread.taken("P", 10)
    assert spread.shares({"P"}) == {"P": 1.0}


def test_what_is_older_counts_less_and_in_the_end_nothing(spread: Spread) -> None:
    spread.taken("OLD", 500)
    shares = []
    for _ in range(12):
        spread.taken("P", REMEMBERED)
        shares.append(spread.shares({"OLD", "P"}).get("OLD", 0.0))
    assert shares == sorted(shares, reverse=True)
    assert shares[0] < 0.1
    assert spread.shares({"OLD", "P"}) == {"P": 1.0}
