"""Where the time of a pipeline's row goes: each step by the clock, and what used the CPU."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from spark.sources.ledger import Ledger
from spark.steps import dispatch

_TICKS = os.sysconf("SC_CLK_TCK")
_OF_JAVA = {"C1 ": "java_compiles", "C2 ": "java_compiles", "GC ": "java_gc", "G1 ": "java_gc"}
_STEPS = ((dispatch, "_claims", "plan"), (Ledger, "freeze", "freeze"), (dispatch, "_said", "publish"),
          (Ledger, "mark", "mark"))  # fmt: skip


@contextmanager
def parts(count: int) -> Iterator[dict[str, float]]:
    """What it yields is filled at the end: seconds of each step, and µs of CPU a job."""
    found: dict[str, float] = {}
    before = _cpu_us()
    with ExitStack() as stack:
        for owner, name, step in _STEPS:
            timed = _timed(getattr(owner, name), found, f"{step}_s")
            stack.enter_context(mock.patch.object(owner, name, timed))
        yield found
    for kind, used_us in (_cpu_us() - before).items():
        found[f"{kind}_us"] = round(used_us / count, 2)


def _timed(work: Callable[..., Any], found: dict[str, float], name: str) -> Callable[..., Any]:
    def timed(*said: Any, **more: Any) -> Any:
        began_s = time.perf_counter()
        try:
            return work(*said, **more)
        finally:
            found[name] = round(found.get(name, 0.0) + time.perf_counter() - began_s, 3)

    return timed


def _cpu_us() -> Counter[str]:
    me = psutil.Process()
    used = Counter({"driver": _own_us(me)})
    for process in me.children(recursive=True):
        with suppress(psutil.NoSuchProcess, FileNotFoundError):
            if process.name() == "java":
                used.update(_threads_us(process.pid))
            else:
                used["python"] += _own_us(process)
    return used


def _own_us(process: psutil.Process) -> int:
    times = process.cpu_times()
    return round((times.user + times.system) * 1e6)


def _threads_us(pid: int) -> Counter[str]:
    used: Counter[str] = Counter()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
            used[_OF_JAVA.get(name[:3], "java_works")] += round((int(fields[11]) + int(fields[12])) * 1e6 / _TICKS)
    return used
