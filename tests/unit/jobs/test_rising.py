"""Times of creation order what comes within one millisecond."""

from __future__ import annotations

from fleet.jobs.rising import Rising


def test_ids_that_do_not_rise_are_ordered_by_their_time() -> None:
    rising = Rising()
    times = [rising.at("g", f"job-{number}", 1000) for number in range(8, 13)]
    assert times == [1000, 1000, 1001, 1001, 1001]
    assert sorted(zip(times, [f"job-{n}" for n in range(8, 13)], strict=True))[0][1] == "job-8"


def test_no_group_waits_for_the_clock_of_another() -> None:
    rising = Rising()
    for number in range(100, 0, -1):
        rising.at("busy", f"{number:03}", 1000)
    assert rising.at("other", "a", 1000) == 1000
    assert rising.at(None, "b", 1000) == 1000
