"""The table of `docs/conformance.md` holds what it says: every test it names exists. Read, not run."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conformance.md"
ORDER = ROOT / "docs" / "order.md"
SECTIONS = {"000": 20, "001": 4, "002": 13, "003": 2, "004": 10}
"""Of each seed; only 000 has numbers of its own, of the others the headings are counted here."""
_ROW = re.compile(r"^\| (?P<number>\d{3}-\d+\.\d+) \| (?P<rule>.+) \| (?P<differently>.+) \| (?P<proof>.+) \|$")
_TEST = re.compile(r"`([^`]+)`")


def _rows() -> list[dict[str, str]]:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if re.match(r"\| \d", line)]
    matches = [(line, _ROW.match(line)) for line in lines]
    broken = [line for line, match in matches if match is None]
    assert broken == [], "these rows have not four cells"
    return [match.groupdict() for _, match in matches if match is not None]


ROWS = _rows()


@cache
def _tests_of(file: str) -> frozenset[str]:
    path = ROOT / "tests" / file
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )  # fmt: skip


def test_every_section_of_these_seeds_has_rows_numbered_in_turn() -> None:
    numbers = [row["number"] for row in ROWS]
    assert [number for number, times in Counter(numbers).items() if times > 1] == []
    counts = Counter(number.partition(".")[0] for number in numbers)
    assert list(counts) == [f"{seed}-{i}" for seed, last in SECTIONS.items() for i in range(1, last + 1)]
    assert numbers == [f"{section}.{i}" for section, count in counts.items() for i in range(1, count + 1)]


@pytest.mark.parametrize("row", ROWS, ids=[row["number"] for row in ROWS])
def test_a_row_names_tests_that_exist_or_says_that_it_is_open(row: dict[str, str]) -> None:
    if row["proof"] in ("**open**", "**not taken**"):
        return
    named = _TEST.findall(row["proof"])
    assert named, "it names no test"
    assert row["proof"] == ", ".join(f"`{name}`" for name in named)
    missing = [name for name in named if name.partition("::")[2] not in _tests_of(name.partition("::")[0])]
    assert missing == []


def test_what_is_decided_differently_says_where_and_why() -> None:
    where = re.compile(r"§\d|CONTRACT \d|PIPELINE \d|BROKER \d|STYLE \d|Issue \d|README of the seeds")
    silent = [row["number"] for row in ROWS if row["differently"] != "–" and not where.match(row["differently"])]
    assert silent == []


def test_what_is_not_taken_says_why() -> None:
    assert [row["number"] for row in ROWS if row["proof"] == "**not taken**" and row["differently"] == "–"] == []


def test_what_is_promised_of_order_under_faults_names_tests_that_exist() -> None:
    part = ORDER.read_text("utf-8").partition("## What proves it")[2]
    rows = re.findall(r"^\| [^|`]+ \| (`.+`) \|$", part, re.MULTILINE)
    assert len(rows) == part.count("\n| ") - 1, "each row names its tests"
    named = [name for row in rows for name in _TEST.findall(row)]
    assert [name for name in named if name.partition("::")[2] not in _tests_of(name.partition("::")[0])] == []
