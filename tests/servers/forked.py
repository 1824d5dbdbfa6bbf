"""The `fleet` command as a process that is forked of one which has imported all of it, rather than started anew.

Python takes 0.6 s of a core to import what the command needs, and a test starts half a dozen of them, or asks again and
again. A fork is a process like any other: it has its own pid, signals, files and end.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path

_IMPORTED = (
    # What the command imports at its first use too.
    "coordinator.main",
    "coordinator.syncer.main",
    "fleet.cli.main",
    "fleet.server.main",
    "fleet.sources.activemq.source",
    "fleet.sources.nats.source",
    "fleet.sources.own.source",
    "fleet.sources.sqlite.source",
    "fleet.sources.sqs.source",
    "fleet.sources.topics.source",
    "workers.main",
)

_PR_SET_PDEATHSIG = 1
_APPEND = os.O_WRONLY | os.O_APPEND


class Forked:
    """As `subprocess.Popen`, as far as tests ask. `errors`: where it says what went wrong, if not in `output` too."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        output: Path,
        *,
        errors: Path | None = None,
        given: Path = Path(os.devnull),
        directory: Path = Path(),
    ) -> None:
        output.touch()
        arguments = (command, dict(environment), str(output), str(errors or output), str(given), str(directory))
        # Daemonic: it ends with us, if nobody ends it before.
        self._process = _server().Process(target=_become, args=arguments, daemon=True)
        self._process.start()
        self._end = -1
        with suppress(ProcessLookupError):
            self._end = os.pidfd_open(self.pid)

    @property
    def has_ended(self) -> bool:
        """As the kernel says. Its exit code comes by way of who has forked it, which may take its time."""
        return self._ends_within(0)

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    @property
    def returncode(self) -> int | None:
        return self.wait() if self.has_ended else None

    def wait(self, timeout: float | None = None) -> int:
        if not self._ends_within(timeout):
            raise subprocess.TimeoutExpired(str(self), timeout or 0)
        self._process.join()
        code = self._process.exitcode
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            if self._end >= 0:
                signal.pidfd_send_signal(self._end, number)

    def kill(self) -> None:
        """It does nothing more when this returns."""
        self.send_signal(signal.SIGKILL)
        self._ends_within(None)

    def _ends_within(self, timeout_s: float | None) -> bool:
        if self._end < 0:
            return True
        waiting = select.poll()
        waiting.register(self._end, select.POLLIN)
        return bool(waiting.poll(None if timeout_s is None else timeout_s * 1000))

    def __del__(self) -> None:
        if getattr(self, "_end", -1) >= 0:
            os.close(self._end)


def run(
    command: Sequence[str], environment: Mapping[str, str], directory: Path, *, given: str = "", timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with its output captured."""
    with tempfile.TemporaryDirectory(prefix="fleet-forked-") as folder:
        input_, output, errors = (Path(folder, name) for name in ("input", "output", "errors"))
        input_.write_text(given)
        errors.touch()
        process = Forked(command, environment, output, errors=errors, given=input_, directory=directory)
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        return subprocess.CompletedProcess(command, code, output.read_text(), errors.read_text())


@cache
def _server() -> ForkServerContext:
    context = get_context("forkserver")
    context.set_forkserver_preload(["__main__", __name__, *_IMPORTED])
    return context


def _become(
    command: Sequence[str], environment: Mapping[str, str], output: str, errors: str, given: str, directory: str
) -> None:
    """In the fork: what an interpreter of its own begins and ends with."""
    # Left by who has forked us: with its end we end, and what it has open is not ours.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number, (name, flags) in enumerate(((given, os.O_RDONLY), (output, _APPEND), (errors, _APPEND))):
        file = os.open(name, flags)
        os.dup2(file, number)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = list(command)
    from fleet.cli.main import main

    try:
        main()
    except Exception:
        sys.excepthook(*sys.exc_info())
        sys.exit(1)
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
