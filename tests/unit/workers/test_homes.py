"""Which workers hear of which pool."""

from __future__ import annotations

from collections import Counter

import pytest

from workers.homes import HOMES, Globs, Homes

ALL: Globs = ("*",)
CODES = [f"POOL-{number}" for number in range(2000)]


def a_fleet(count: int, **special: Globs) -> dict[str, Homes]:
    """Each worker's own view of who lives."""
    peers = {f"worker-{number}": ALL for number in range(count)} | special
    found = {name: Homes(name, globs) for name, globs in peers.items()}
    for homes in found.values():
        homes.follow(peers)
    return found


def order(fleet: dict[str, Homes], code: str, most: int = HOMES) -> list[str]:
    """Who thinks that it stands where, in the order of a pool."""
    places = {name: homes.place(code, most) for name, homes in fleet.items()}
    return sorted((name for name, place in places.items() if place < most), key=lambda name: places[name])


@pytest.mark.parametrize("workers", [1, 2, 3, 20])
def test_every_pool_has_its_homes_each_at_a_place_of_its_own(workers: int) -> None:
    fleet = a_fleet(workers)
    for code in CODES[:200]:
        places = sorted(homes.place(code) for homes in fleet.values())
        assert places[: min(workers, HOMES)] == list(range(min(workers, HOMES)))
        assert places.count(HOMES) == max(0, workers - HOMES)


def test_alone_one_is_the_first_of_every_pool() -> None:
    assert {Homes("me", ALL).place(code) for code in CODES} == {0}


def test_pools_are_spread_fairly() -> None:
    fleet = a_fleet(10)
    firsts = Counter(order(fleet, code)[0] for code in CODES)
    assert len(firsts) == 10
    assert max(firsts.values()) < 2 * len(CODES) / 10


def test_one_that_goes_gives_up_its_pools_and_no_others_move() -> None:
    before = a_fleet(10)
    homes = {code: order(before, code) for code in CODES}
    after = {name: one for name, one in a_fleet(10).items() if name != "worker-3"}
    for one in after.values():
        one.follow(dict.fromkeys(after, ALL))
    for code in CODES:
        stayed = [name for name in homes[code] if name != "worker-3"]
        assert order(after, code)[: len(stayed)] == stayed


def test_a_worker_stands_only_in_the_order_of_pools_that_it_serves() -> None:
    fleet = a_fleet(2, narrow=("A-*",))
    assert order(fleet, "B-1", 3) in (["worker-0", "worker-1"], ["worker-1", "worker-0"])
    assert any("narrow" in order(fleet, f"A-{number}") for number in range(20))


def test_the_order_goes_on_as_far_as_it_is_asked_for() -> None:
    fleet = a_fleet(8)
    assert len(order(fleet, "P", 8)) == 8
    assert order(fleet, "P", 8)[:3] == order(fleet, "P", 3)


def test_the_same_living_are_nothing_new() -> None:
    homes = Homes("me", ALL)
    assert homes.follow({"you": ALL})
    assert not homes.follow({"you": ALL, "me": ALL})
    assert homes.follow({})
