"""Runs seeds, each in a process of its own: no run meets what another left behind, and one that hangs is ended.

The processes are forked from this one, which has everything imported and compiled already.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.simulation.options import spans
from tests.simulation.scenario import FAULTS, MESSAGES, Family, Scenario, scenario
from tests.simulation.world import World

MOST_CPU_S = 90


@dataclass(frozen=True)
class Case:
    """What to run: a seed, with all of its faults and messages or only these."""

    seed: int
    only: tuple[Family, ...] = ()
    faults: tuple[int, ...] | None = None
    messages: tuple[int, ...] | None = None

    def scenario(self) -> Scenario:
        whole = scenario(self.seed, only=self.only, messages=MESSAGES, faults=FAULTS)
        return replace(
            whole,
            faults=tuple(f for f in whole.faults if self.faults is None or f.number in self.faults),
            messages=tuple(m for m in whole.messages if self.messages is None or m.number in self.messages),
        )

    def command(self) -> str:
        """The command that runs it again."""
        parts = ["scripts/simulate", "--seed", str(self.seed)]
        for family in self.only:
            parts += ["--only", family]
        if self.faults is not None:
            parts += ["--faults", spans(self.faults) or "none"]
        if self.messages is not None:
            parts += ["--messages", spans(self.messages) or "none"]
        return " ".join(parts)


@dataclass(frozen=True)
class Result:
    case: Case
    kind: str
    """'' if nothing was wrong."""
    text: str
    at_s: float
    digest: str
    events: int
    cpu_s: float
    virtual_s: float
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.kind

    def line(self) -> str:
        return f"seed {self.case.seed}: {self.kind or 'ok'} at {self.at_s:.3f} s: {self.text}"


def run_here(case: Case, trace: Callable[[str], None] | None = None, *, folder: str | None = None) -> Result:
    """`folder`: where its files may be; they are removed after the run."""
    if folder is None:
        with _folder() as made:
            return run_here(case, trace, folder=made)
    began_s = time.process_time()
    with tempfile.TemporaryDirectory(dir=folder) as of_this:
        world = World(case.scenario(), trace=trace, folder=of_this)
        violation = world.run()
    return Result(
        case,
        violation.kind if violation is not None else "",
        violation.text if violation is not None else "",
        violation.at_s if violation is not None else world.loop.now_s,
        f"{world.digest:08x}",
        world.events,
        time.process_time() - began_s,
        world.loop.now_s,
        tuple(fault.kind for fault in world.scenario.faults),
    )


def run_all(cases: Iterable[Case], *, jobs: int) -> Iterator[Result]:
    """Results as they come, `jobs` at a time."""
    waiting = iter(cases)
    running: dict[int, tuple[Case, int, bytearray]] = {}
    with _folder() as folder, selectors.DefaultSelector() as selector:
        try:
            while True:
                while len(running) < jobs and (case := next(waiting, None)) is not None:
                    pid, fd = _begin(case, folder)
                    running[fd] = case, pid, bytearray()
                    selector.register(fd, selectors.EVENT_READ)
                if not running:
                    return
                for key, _ in selector.select():
                    case, pid, data = running[key.fd]
                    chunk = os.read(key.fd, 1 << 16)
                    if chunk:
                        data += chunk
                        continue
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    del running[key.fd]
                    _, status = os.waitpid(pid, 0)
                    yield _result(case, bytes(data), status)
        finally:
            for _, pid, _ in running.values():
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    """For the files of all runs, in memory: even a run that is killed leaves nothing behind."""
    in_memory = os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 1 << 28
    folder = tempfile.mkdtemp(prefix="fleet-simulation-", dir="/dev/shm" if in_memory else None)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _begin(case: Case, folder: str) -> tuple[int, int]:
    sys.stdout.flush()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    try:
        os.close(reader)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S + 1))
        gc.disable()  # what dead processes leave must not be collected, or its `finally` would run
        try:
            told = _told(run_here(case, folder=folder))
        except BaseException:
            told = {"kind": "harness", "text": traceback.format_exc()}
        with os.fdopen(writer, "w") as pipe:
            json.dump(told, pipe)
    finally:
        os._exit(0)


def _told(result: Result) -> dict[str, Any]:
    return {name: value for name, value in vars(result).items() if name != "case"}


def _result(case: Case, data: bytes, status: int) -> Result:
    told: dict[str, Any] = {"at_s": 0.0, "digest": "", "events": 0, "cpu_s": 0.0, "virtual_s": 0.0, "faults": ()}
    if data:
        told |= json.loads(data)
    elif os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        told |= {"kind": "hang", "text": f"it did not end within {MOST_CPU_S} s of CPU time"}
    else:
        told |= {"kind": "harness", "text": f"its process ended with status {status} and said nothing"}
    return Result(case, **(told | {"faults": tuple(told["faults"])}))
