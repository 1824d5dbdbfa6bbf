"""Seeds that ever failed, a fixed number of others, and with `--long` as many of the day as fit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.simulate import simulate

SEEDS = 40
"""Some of every draw: those of the day take the seconds that are stated."""
SECONDS = 90.0
EVER_FAILED = Path(__file__).with_name("seeds.txt")
SEEDS_OF_A_DAY = 1_000_000


def ever_failed() -> list[str]:
    lines = EVER_FAILED.read_text("utf-8").splitlines()
    return [line.split()[0] for line in lines if line and not line.startswith("#")]


def check(results: list[dict[str, Any]]) -> None:
    failed = [one for one in results if one["kind"]]
    assert not failed, "\n".join(f"{one['command']} --trace: {one['kind']}: {one['text']}" for one in failed)


def test_no_seed_that_ever_failed_fails_again() -> None:
    for seed in ever_failed():
        check(simulate("--seed", seed))


def test_the_first_seeds_hold() -> None:
    results = simulate("--seeds", str(SEEDS))
    assert len(results) == SEEDS
    check(results)


@pytest.mark.long
def test_the_seeds_of_the_day_hold() -> None:
    first = int(time.time() // 86400) * SEEDS_OF_A_DAY
    results = simulate("--from", str(first), "--minutes", str(SECONDS / 60), timeout_s=SECONDS * 4)
    print(f"{len(results)} seeds from {first} on")
    assert len(results) >= 20
    check(results)
