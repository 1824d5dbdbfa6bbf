"""What came of all runs is told: nothing that failed is missed, and nothing that ran is forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suites.lanes import Run
from tests.suites.parts import Part
from tests.suites.report import Count, count_of, report

JUNIT = (
    '<testsuites><testsuite errors="0" failures="{failed}" skipped="0" tests="{tests}">'
    '<testcase classname="tests.state.test_model" name="test_a" time="2.5"/>'
    '<testcase classname="tests.state.test_claim" name="test_b[x]" time="9.0">{cause}</testcase>'
    "</testsuite></testsuites>"
)
PASSED, NONE = (JUNIT.format(failed=0, tests=tests, cause="") for tests in (2, 0))
FAILED = JUNIT.format(failed=1, tests=2, cause='<failure message="assert"/>')


@pytest.mark.parametrize(
    ("statuses", "junits", "expected"),
    [
        ([0], [PASSED], Count(passed=2)),
        ([1], [FAILED], Count(passed=1, failed=1)),
        # All passed, and it ended badly nevertheless.
        ([3], [PASSED], Count(passed=2, failed=1)),
        ([-9], ["<testsuites><test"], Count(failed=1)),
        ([-9], [""], Count(failed=1)),
        ([4, 0], ["", PASSED], Count(passed=2, failed=1)),
        # Of two parts one had the test that was chosen.
        ([5, 0], [NONE, PASSED], Count(passed=2)),
        ([5], [NONE], Count(failed=1)),
    ],
)
def test_what_a_suite_comes_to(tmp_path: Path, statuses: list[int], junits: list[str], expected: Count) -> None:
    runs = []
    for number, (status, junit) in enumerate(zip(statuses, junits, strict=True)):
        run = Run(Part("state"), tmp_path / str(number), status=status)
        run.folder.mkdir()
        if junit:
            run.junit.write_text(junit)
        runs.append(run)
    assert count_of(runs) == expected


def test_the_report_names_the_slowest_and_ends_with_how_many_passed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(Part("state"), tmp_path, took_s=66.6)
    run.junit.write_text(PASSED)
    assert report([run], ["unit", "state"], took_s=70.0)
    assert capsys.readouterr().out == (
        "\nThe slowest tests:\n"
        "    9.0 s  state/test_claim.py::test_b[x]\n"
        "    2.5 s  state/test_model.py::test_a\n"
        "\n"
        "ok    state            2 passed, 0 failed, 67 s\n"
        "70 s in all\n"
        "scripts/test: 2 passed, 0 failed\n"
    )


def test_a_failure_and_a_run_of_nothing_are_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(Part("state"), tmp_path, status=1)
    run.junit.write_text(FAILED)
    assert not report([run], ["state"], took_s=1.0)
    said = "\nFAILED state/test_claim.py::test_b[x]\nFAIL  state            1 passed, 1 failed, 0 s\n"
    assert said in capsys.readouterr().out
    assert not report([], ["browser"], took_s=0.0)
    assert capsys.readouterr().out.endswith("no test ran\n0 s in all\nscripts/test: 0 passed, 1 failed\n")
