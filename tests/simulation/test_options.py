"""What `scripts/simulate` can be asked for: what it cannot do, it says in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.options import parse, parser_of_all

ROOT = Path(__file__).parents[2]


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0", "FLEET_PYTHON": sys.executable}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--only weathr", "there is no family weathr (there are: clocks, config, "),
        ("--without mend", "there is no mend mend (there are: 1-refusals, "),
        ("--without=", "there is no mend  (there are: 1-refusals, "),
        ("--seed 1 --messages abc", "argument --messages: 'abc' is not a list of numbers, as in 1,4-6"),
        ("--seed 1 --messages 3,", "argument --messages: '3,' is not a list of numbers"),
        ("--seed 1 --messages 7,200", "seed 1 has no message 200 (it has: 0-199)"),
        ("--seed 1 --faults 99", "seed 1 has no fault 99 (it has: 0-19)"),
        ("--seed 1 --faults 3,20-22", "seed 1 has no fault 20-22 (it has: 0-19)"),
        ("--faults 3", "--faults is of one seed: name it with --seed"),
        ("--trace", "--trace is of one seed: name it with --seed"),
        ("--these x", "argument --these: 'x' is not a list of numbers"),
        ("--these none", "argument --these: 'none' is not a list of numbers"),
        ("--these 5-3", "argument --these: 5-3 is not from a number to a higher one"),
        ("--these 1-9999999999", "argument --these: 1-9999999999 is not from a number to a higher one, of 1,000,000"),
        ("--jobs 0", "argument --jobs: '0' is not a number above 0"),
        ("--minutes nan", "argument --minutes: 'nan' is not a number above 0"),
        ("--seed one", "argument --seed: invalid int value: 'one'"),
        ("--sed 1", "unrecognized arguments: --sed 1"),
    ],
)
def test_what_it_cannot_do_it_says_in_one_line(arguments: str, said: str) -> None:
    done = run(sys.executable, "-m", "tests.simulation", *arguments.split())
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    assert done.stderr.startswith(f"scripts/simulate: {said}")


def test_help_needs_nothing_but_python(tmp_path: Path) -> None:
    for name in ("scripts/simulate", "tests/simulation/__main__.py", "tests/simulation/options.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    done = run(str(tmp_path / "scripts/simulate"), "--seed", "17", "--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: scripts/simulate ")
    examples = done.stdout.partition("examples:\n")[2].splitlines()
    assert len(examples) == 3
    for line in examples:
        parse(line.strip().split("   ")[0].split()[1:])


def test_every_option_says_what_it_does() -> None:
    assert [action.option_strings for action in parser_of_all()._actions if not action.help] == []
