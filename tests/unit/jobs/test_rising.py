"""Times of creation order what comes within one millisecond."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fleet.jobs.rising import LONGEST_EVENT_ID, Rising, begins_its_jobs


def test_ids_that_do_not_rise_are_ordered_by_their_time() -> None:
    rising = Rising()
    times = [rising.at("g", f"job-{number}", 1000) for number in range(8, 13)]
    assert times == [1000, 1000, 1001, 1001, 1001]
    assert sorted(zip(times, [f"job-{n}" for n in range(8, 13)], strict=True))[0][1] == "job-8"


@pytest.mark.parametrize(
    "ids",
    [
        ["order-17", "order-17-paid", "order-17 again", "order-18"],
        ["order-17", "order-17.cancelled", "order-17.cancelled.again"],
        ["a", "b" * (LONGEST_EVENT_ID + 1), "c", "d" * 5000, "e" * 5000],
    ],
)
def test_events_of_a_millisecond_are_ordered_as_the_ids_of_their_jobs_are(ids: list[str]) -> None:
    """`order-17` comes before `order-17-paid`, but `order-17.1a2b` behind `order-17-paid.3c4d`."""
    rising = Rising()
    times = [rising.at("g", begins_its_jobs(id_), 1000) for id_ in ids]
    for earlier, later in pairwise(list(zip(ids, times, strict=True))):
        # Of ids of which one begins the other a hash would decide.
        assert later[0][: len(earlier[0]) + 1] != f"{earlier[0]}." or later[1] > earlier[1]
    # What begins the id of no job may stand anywhere among those of its time: it has one of its own.
    places = [(at, begins_its_jobs(id_) or "") for id_, at in zip(ids, times, strict=True)]
    assert places == sorted(places)
    assert [times.count(at) for id_, at in zip(ids, times, strict=True) if begins_its_jobs(id_) is None] == [
        1 for id_ in ids if len(id_) > LONGEST_EVENT_ID
    ]


def test_no_group_waits_for_the_clock_of_another() -> None:
    rising = Rising()
    for number in range(100, 0, -1):
        rising.at("busy", f"{number:03}", 1000)
    assert rising.at("other", "a", 1000) == 1000
    assert rising.at(None, "b", 1000) == 1000
