"""How many leases a process may still take, over all its pools."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.unit.workers.links import Link
from workers.exchange import MAX_CLAIM
from workers.seats import Seats


def woken(links: list[Link]) -> list[int]:
    return [link.wakes for link in links]


def crowd(seats: Seats, count: int) -> list[Link]:
    """So many who find no seat, in this order."""
    links = [Link(f"P{number}") for number in range(count)]
    for link in links:
        assert seats.take(MAX_CLAIM, cast(Any, link)) == 0
    return links


def test_nobody_takes_more_than_there_are() -> None:
    seats, link = Seats(10, lambda: False), cast(Any, Link())
    taken = [(seats.take(4, link), seats.has_room) for _ in range(4)]
    assert taken == [(4, True), (4, True), (2, False), (0, False)]
    seats.give(3)
    assert (seats.has_room, seats.take(MAX_CLAIM, link), seats.has_room) == (True, 3, False)


@pytest.mark.parametrize(
    ("given", "woken_links"),
    [(1, 1), (MAX_CLAIM, 1), (MAX_CLAIM + 1, 2), (3 * MAX_CLAIM, 3), (100 * MAX_CLAIM, 5)],
)
def test_as_many_of_those_who_stand_are_woken_as_can_sit_down_the_first_first(given: int, woken_links: int) -> None:
    seats = Seats(0, lambda: False)
    links = crowd(seats, 5)
    seats.give(given)
    assert woken(links) == [1] * woken_links + [0] * (5 - woken_links)


def test_who_was_woken_stands_no_longer_and_who_stood_twice_is_woken_once() -> None:
    seats = Seats(0, lambda: False)
    first, second = crowd(seats, 2)
    seats.take(1, cast(Any, first))
    for _ in range(4):
        seats.give(1)
    assert woken([first, second]) == [1, 1]


def test_who_stops_wakes_nobody() -> None:
    seats = Seats(0, lambda: True)
    links = crowd(seats, 1)
    seats.give(MAX_CLAIM)
    assert (woken(links), seats.has_room) == ([0], True)
