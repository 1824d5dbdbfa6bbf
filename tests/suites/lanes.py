"""Runs parts of suites beside each other, so many at a time: most of them wait for most of their time."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path

from tests.suites import progress
from tests.suites.parts import TESTS, Part

TELL_EVERY_S = 20.0
FULL = 1.4
"""Of the cores: as many parts begin as keep them busy, and a few more, as none is so all the time."""
STOP_S = 60.0
"""What a pytest that is told to stop has for its servers and processes."""


@dataclass(slots=True)
class Run:
    """One pytest."""

    part: Part
    folder: Path
    began_s: float = 0.0
    took_s: float = 0.0
    status: int = 0

    @property
    def junit(self) -> Path:
        return self.folder / "junit.xml"

    @property
    def output(self) -> Path:
        return self.folder / "output"

    @property
    def progress(self) -> Path:
        return self.folder / "progress"

    def far(self) -> str:
        how_far = self.progress.read_text() if self.progress.exists() else ""
        return f"{self.part.title} {how_far or 'begins'}"


class Lanes:
    def __init__(
        self, parts: Sequence[Part], options: Sequence[str], *, jobs: int, folder: Path, cores: float = inf
    ) -> None:
        """`jobs` at a time at most, and fewer where they keep all `cores` busy."""
        self._options = list(options)
        self._jobs = jobs
        self._cores = cores * FULL
        self.runs = [Run(part, folder / str(number)) for number, part in enumerate(parts)]
        self._is_live = jobs == 1 or len(self.runs) == 1
        """Its output goes where ours goes: there is no other to keep it apart from."""
        self._waiting = list(self.runs)
        self._running: dict[asyncio.Task[None], Run] = {}
        self._began_s = time.monotonic()

    @property
    def took_s(self) -> float:
        return time.monotonic() - self._began_s

    async def run(self) -> None:
        """All of them; cancelled, it ends those that run."""
        try:
            while self._waiting or self._running:
                while (run := self._next(list(self._running.values()))) is not None:
                    self._waiting.remove(run)
                    self._running[asyncio.create_task(self._run(run))] = run
                timeout_s = None if self._is_live else TELL_EVERY_S
                ended, _ = await asyncio.wait(self._running, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    del self._running[task]
                    task.result()
                if not ended:
                    self._tell()
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    def _next(self, running: Sequence[Run]) -> Run | None:
        """The first of those that wait for which there is room."""
        if not running:
            return self._waiting[0] if self._waiting else None
        if len(running) >= self._jobs or any(run.part.is_alone for run in running):
            return None
        free = self._cores - sum(run.part.cores for run in running)
        return next((run for run in self._waiting if run.part.cores <= free and not run.part.is_alone), None)

    async def _run(self, run: Run) -> None:
        run.folder.mkdir()
        run.began_s = time.monotonic()
        say(f"== {run.part.title}" if self._is_live else f"{_clock(self.took_s)} {run.part.title} begins")
        command = [sys.executable, "-m", "pytest", "-q", *run.part.arguments, f"--junitxml={run.junit}"]
        with run.output.open("wb") as output:
            if not self._is_live:
                command += ["-p", progress.__name__, *(["--color=yes"] if sys.stdout.isatty() else [])]
            process = await asyncio.create_subprocess_exec(
                *_guard(run.part),
                *command,
                *self._options,
                cwd=TESTS.parent,
                env={**os.environ, **({} if self._is_live else {progress.FILE: str(run.progress)})},
                stdin=DEVNULL,
                stdout=None if self._is_live else output,
                stderr=None if self._is_live else STDOUT,
                # Ctrl-C is told to it once, by us: a second one would end it before its servers have ended.
                start_new_session=True,
            )
        try:
            run.status = await process.wait()
        finally:
            if process.returncode is None:
                await _stop(process)
            run.took_s = time.monotonic() - run.began_s
        if not self._is_live:
            say(f"{_clock(self.took_s)} {run.part.title} has ended, after {run.took_s:.0f} s")
            say(f"== {run.part.title}\n{run.output.read_text(errors='replace').rstrip()}")

    def _tell(self) -> None:
        how_far = ", ".join(run.far() for run in self._running.values())
        say(f"{_clock(self.took_s)} {how_far}" + (f"; {len(self._waiting)} to come" if self._waiting else ""))


async def _stop(process: Process) -> None:
    """As Ctrl-C does, so that it ends what it has started. What is left of its group then is killed."""
    with suppress(ProcessLookupError, TimeoutError):
        process.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _guard(part: Part) -> Sequence[str]:
    # Ended with us, however we end.
    guard = ["setpriv", "--pdeathsig", "INT"] if shutil.which("setpriv") else []
    return [*guard, *(["nice", "-n", "10"] if part.gives_way else [])]


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:3d}:{int(seconds) % 60:02d}"


def say(words: str) -> None:
    print(words, flush=True)
