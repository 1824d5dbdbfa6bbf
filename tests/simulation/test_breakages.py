"""With a fix taken out, or a bug put in, the simulation finds the fault by itself; otherwise it finds none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.simulation.breakages import BREAKAGES, Breakage
from tests.simulation.simulate import simulate

TESTING = Path(__file__).parents[2] / "docs/testing.md"
NAMES = sorted(BREAKAGES)


def found(name: str, *, first: int, most: int, jobs: int = 1) -> int:
    """The first seed that shows the bug in one of its ways."""
    breakage = BREAKAGES[name]
    results = simulate("--without", name, "--from", str(first), "--seeds", str(most), "--jobs", str(jobs))
    seeds = [int(one["seed"]) for one in results if one["kind"] in breakage.kinds]
    assert seeds, f"{most} seeds from {first} on, and {breakage.what}: none of them shows it"
    return seeds[0]


def is_clean(seed: int, breakage: Breakage) -> bool:
    families = [part for family in breakage.only for part in ("--only", family)]
    (result,) = simulate("--seed", str(seed), *families)
    assert not result["kind"], f"{result['command']} --trace: {result['kind']}: {result['text']}"
    return True


@pytest.mark.parametrize("name", NAMES)
def test_it_finds_what_is_taken_out(name: str) -> None:
    breakage = BREAKAGES[name]

    seed = found(name, first=breakage.found_at, most=breakage.within - breakage.found_at)

    assert is_clean(seed, breakage)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_from_the_first_seed_on_it_finds_what_is_taken_out(name: str) -> None:
    seed = found(name, first=1, most=BREAKAGES[name].within, jobs=2)

    print(f"{name}: found by seed {seed}")
    assert is_clean(seed, BREAKAGES[name])


def test_the_docs_tell_after_how_many_seeds_each_is_found() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| [^|]+ \| (\d+) \| ([\w, ]+) \|$", TESTING.read_text("utf-8"), re.MULTILINE)

    assert {name: (int(seeds), families) for name, seeds, families in rows} == {
        name: (one.found_at, ", ".join(one.only) or "all") for name, one in BREAKAGES.items()
    }
