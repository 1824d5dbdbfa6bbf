"""The `fleet` command as its user runs it: a process, its output, its exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import psutil

from fleet.local.supervise import child_environment
from tests.servers import forked
from tests.waiting import PATIENCE_S, until


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@dataclass
class Fleet:
    """One working directory, and the commands run in it."""

    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    patience_s: float = PATIENCE_S

    def run(self, *arguments: str, input_text: str | None = None, **environment: str) -> Result:
        """To its end. What `running` starts is a command as its user starts it; this one is a fork (forked.py)."""
        environment = self._environment(environment)
        command = ["fleet", *arguments]
        done = forked.run(command, environment, self.directory, given=input_text or "", timeout_s=self.patience_s)
        return Result(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def running(self, *arguments: str, **environment: str) -> Iterator[Process]:
        """A command that goes on; whatever it started is gone at the end, or the test fails."""
        log = self.directory / f"{arguments[0]}-{time.monotonic_ns()}.log"
        if arguments[0] == "up":
            # A driver of the pipeline takes a second of a core to start: who is about something else does without.
            environment = {"FLEET_FEED_ENABLED": "false", **self.environment, **environment}
        with log.open("wb") as output:
            popen = subprocess.Popen(
                self._command(arguments),
                cwd=self.directory,
                env=self._environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process = Process(popen, log)
        try:
            yield process
        finally:
            leftovers = process.family() if popen.poll() is None else []
            if popen.poll() is None:
                popen.terminate()
                try:
                    popen.wait(PATIENCE_S)
                except subprocess.TimeoutExpired:
                    popen.kill()
                    popen.wait()
            for member in leftovers:
                if member.is_running():
                    member.kill()

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-P", "-m", "fleet.cli", *arguments]

    def _environment(self, changes: Mapping[str, str]) -> dict[str, str]:
        base = {name: value for name, value in os.environ.items() if not name.startswith(("FLEET_", "MESSAGE_"))}
        # A fleet of somebody else, or of another test, may have the port that `fleet up` takes by itself.
        return child_environment({**base, "FLEET_SERVER_PORT": "0", **self.environment, **changes})


@dataclass
class Process:
    popen: subprocess.Popen[bytes]
    log: Path
    killed: ClassVar[int] = -signal.SIGKILL
    """Its exit code when it was."""

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def family(self) -> list[psutil.Process]:
        """Everything it started and what that started."""
        return psutil.Process(self.popen.pid).children(recursive=True)

    def says(self, words: str, *, patience_s: float = PATIENCE_S) -> None:
        def said() -> bool:
            assert self.popen.poll() is None or words in self.text(), self.text()
            return words in self.text()

        until(said, patience_s, self.text)

    @cached_property
    def pid(self) -> int:
        return self.popen.pid

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.popen.wait(PATIENCE_S)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        os.kill(self.pid, number)
        return self.popen.wait(PATIENCE_S)
