"""A failing seed is only worth as much as its replay: the same seed is the same run, event by event."""

from __future__ import annotations

import pytest

from tests.simulation.simulate import simulate


@pytest.mark.parametrize("seed", [2, 3, 7])
def test_a_seed_replays_exactly(seed: int) -> None:
    first, second = simulate("--seed", str(seed)), simulate("--seed", str(seed))

    assert first[0]["events"] > 1000
    assert [first[0][name] for name in ("digest", "events", "kind")] == [
        second[0][name] for name in ("digest", "events", "kind")
    ]


def test_another_seed_is_another_run() -> None:
    assert len({one["digest"] for one in simulate("--seeds", "5")}) == 5


def test_a_seed_alone_is_the_same_as_among_others() -> None:
    alone, among = simulate("--seed", "4"), simulate("--seeds", "4", "--jobs", "1")

    assert alone[0]["digest"] == among[3]["digest"]
