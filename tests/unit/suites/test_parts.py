"""Whatever runs beside whatever: each test of a suite runs once."""

from __future__ import annotations

import re
from pathlib import Path

from tests.suites.parts import _PARTS, TESTS, Part, parts_of, whole

ROOT = TESTS.parent


def known() -> list[str]:
    """The suites of scripts/test."""
    found = re.search(r"^known=\((.*)\)$", (ROOT / "scripts/test").read_text(), re.MULTILINE)
    assert found is not None
    return found[1].split()


def test_every_suite_has_a_part_for_what_no_other_has_and_every_file_that_is_named_exists() -> None:
    assert [part.suite for part in _PARTS if not part.files] == known()
    named = [TESTS / part.suite / file for part in _PARTS for file in part.files]
    assert [file for file in named if not file.is_file()] == []
    assert len(set(named)) == len(named)


def test_each_file_of_tests_is_in_one_part() -> None:
    for suite in known():
        chosen = [file for part in parts_of([suite]) for file in chosen_by(part)]
        there = sorted((TESTS / suite).rglob("test_*.py"))
        assert sorted(chosen) == there
        assert [part.suite for part in whole([suite])] == ([suite] if there else [])


def chosen_by(part: Part) -> list[Path]:
    """As pytest reads these arguments."""
    paths = [ROOT / argument for argument in part.arguments if not argument.startswith("-")]
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py"))]
    return [file for file in files if f"--ignore={file.relative_to(ROOT)}" not in part.arguments]


def test_those_that_are_alone_come_last_and_the_longest_of_the_others_first() -> None:
    parts = parts_of(known())
    assert [part.is_alone for part in parts] == sorted(part.is_alone for part in parts)
    together = [part.about_s for part in parts if not part.is_alone]
    assert together == sorted(together, reverse=True)
