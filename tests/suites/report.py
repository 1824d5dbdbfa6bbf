"""What came of all runs: a line for each suite, the slowest tests, and how many passed."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.suites.lanes import Run, say
from tests.suites.parts import TESTS

SLOWEST = 10
NOTHING_RAN = 5
"""Pytest's status where no test was chosen: some part of its suite may have had one."""


@dataclass(frozen=True, slots=True)
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


def report(runs: Sequence[Run], suites: Sequence[str], *, took_s: float) -> bool:
    """Whether all is well. The last line says so, for whoever reads that alone."""
    by_suite = {suite: [run for run in runs if run.part.suite == suite] for suite in suites}
    lines, total = [], Count()
    for suite, ran in by_suite.items():
        if not ran:
            continue
        count = count_of(ran)
        total += count
        verdict = "FAIL" if count.failed else "ok"
        seconds = sum(run.took_s for run in ran)
        lines.append(f"{verdict:<5} {suite:<12} {count.passed:5d} passed, {count.failed} failed, {seconds:.0f} s")
    slowest = sorted((timed for run in runs for timed in _timed(run.junit)), reverse=True)[:SLOWEST]
    if slowest:
        say("\nThe slowest tests:")
    for seconds, name in slowest:
        say(f"{seconds:7.1f} s  {name}")
    say("")
    # Their output is above, perhaps far above.
    for line in [f"FAILED {name}" for run in runs for name in _failed(run.junit)] + lines:
        say(line)
    if total.passed + total.failed == 0:
        say("no test ran")
        total += Count(failed=1)
    skipped = f", {total.skipped} skipped" if total.skipped else ""
    say(f"{took_s:.0f} s in all")
    say(f"scripts/test: {total.passed} passed, {total.failed} failed{skipped}")
    return total.failed == 0


def count_of(runs: Sequence[Run]) -> Count:
    """Of one suite. What ends badly without a test that failed has failed itself, and so has a suite that ran none."""
    total = Count()
    for run in runs:
        count = _count(run.junit)
        if run.status not in (0, NOTHING_RAN) and count.failed == 0:
            count += Count(failed=1)
        total += count
    return total if total != Count() else Count(failed=1)


def _count(junit: Path) -> Count:
    try:
        suite = next(ElementTree.parse(junit).iter("testsuite")).attrib
        tests, skipped = int(suite["tests"]), int(suite["skipped"])
        failed = int(suite["failures"]) + int(suite["errors"])
        return Count(max(tests - skipped - failed, 0), failed, skipped)
    except (OSError, ElementTree.ParseError, StopIteration):
        return Count(failed=1)


def _timed(junit: Path) -> Iterator[tuple[float, str]]:
    for case in _cases(junit):
        yield float(case.get("time", "0")), _name_of(case)


def _failed(junit: Path) -> list[str]:
    return [_name_of(case) for case in _cases(junit) if any(one.tag in ("failure", "error") for one in case)]


def _cases(junit: Path) -> list[ElementTree.Element]:
    try:
        return list(ElementTree.parse(junit).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return []


def _name_of(case: ElementTree.Element) -> str:
    """`tests.state.test_model` and `test_it` → `state/test_model.py::test_it`."""
    file = case.get("classname", "").removeprefix(f"{TESTS.name}.").replace(".", "/")
    return f"{file}.py::{case.get('name')}"
