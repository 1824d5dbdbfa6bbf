"""For a program that the bench starts to be timed: what it says in its last line."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

import psutil


class Stretch:
    """From `begin` to `end`: the seconds, and the CPU time of this program and of the servers it works with."""

    def __init__(self, servers: Mapping[str, int]) -> None:
        self._pids = {"program": os.getpid(), **servers}
        self._cpu_s: dict[str, float] = {}
        self._began_s = 0.0

    def begin(self) -> None:
        self._cpu_s = {name: tree_s(pid) for name, pid in self._pids.items()}
        self._began_s = time.perf_counter()

    def end(self, count: int, **more: float | int) -> None:
        """Print the figures."""
        seconds = time.perf_counter() - self._began_s
        us = {f"{name}_us": (tree_s(pid) - self._cpu_s[name]) * 1e6 / count for name, pid in self._pids.items()}
        figures = {
            "seconds": round(seconds, 3),
            "count": count,
            **{name: round(value, 2) for name, value in us.items()},
        }
        sys.stdout.write(json.dumps(figures | more) + "\n")
        sys.stdout.flush()


def tree_s(pid: int) -> float:
    """CPU time of a process and of all it started, including those that have ended."""
    total = 0.0
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        for process in (top, *top.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                # The first four are its own and its dead children's; the fifth is time spent waiting for a disk.
                total += sum(process.cpu_times()[:4])
    return total


def stay_on(cores: set[int]) -> None:
    """Keep this program, and whatever it starts from now on, on these cores, if the system lets it."""
    with suppress(OSError):
        os.sched_setaffinity(0, cores)


def one_core() -> set[int]:
    return {max(os.sched_getaffinity(0))}
