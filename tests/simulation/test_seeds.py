"""Seeds that ever failed, a fixed number of others, and as many seeds of the day as fit into the rest of the time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.simulate import simulate

SEEDS = 40
"""Enough to draw some of everything."""
SECONDS = 90.0
"""For this whole file; for any number of seeds: `scripts/simulate --seeds N`."""
EVER_FAILED = Path(__file__).with_name("seeds.txt")
SEEDS_OF_A_DAY = 1_000_000


@pytest.fixture(scope="module")
def over_s() -> float:
    """When the time is up, by the monotonic clock."""
    return time.monotonic() + SECONDS


def ever_failed() -> list[str]:
    lines = EVER_FAILED.read_text("utf-8").splitlines()
    return [line.split()[0] for line in lines if line and not line.startswith("#")]


def check(results: list[dict[str, Any]]) -> None:
    failed = [one for one in results if one["kind"]]
    assert not failed, "\n".join(f"{one['command']} --trace: {one['kind']}: {one['text']}" for one in failed)


def test_no_seed_that_ever_failed_fails_again(over_s: float) -> None:
    results = simulate("--these", ",".join(ever_failed()))
    assert len(results) == len(ever_failed())
    check(results)


def test_the_first_seeds_hold(over_s: float) -> None:
    results = simulate("--seeds", str(SEEDS))
    assert len(results) == SEEDS
    check(results)


def test_the_seeds_of_the_day_hold(over_s: float) -> None:
    first = int(time.time() // 86400) * SEEDS_OF_A_DAY
    left_s = max(1.0, over_s - time.monotonic())
    results = simulate("--from", str(first), "--minutes", str(left_s / 60), timeout_s=left_s + SECONDS)
    print(f"{len(results)} seeds from {first} on")
    assert results
    check(results)
