"""Runs the simulation as a process: it replaces clocks, and has to fix the order of sets from its start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def simulate(*arguments: str, timeout_s: float = 600.0) -> list[dict[str, Any]]:
    """One result per seed, in the order of the seeds."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--json", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    results: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode in (0, 1) and (results or done.returncode == 0), done
    return sorted(results, key=lambda result: int(result["seed"]))
