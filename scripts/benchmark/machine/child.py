"""Child processes that never outlive the benchmark, and are never waited for without a bound."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmark.errors import BenchError

STOP_S = 5.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    # A benchmark that is killed cannot stop its servers; the kernel does it then.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def start(
    command: Sequence[str], *, log: Path, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a child in a process group of its own, so that its own children end with it."""
    with log.open("ab") as output:
        try:
            return subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        except FileNotFoundError as error:
            raise BenchError(f"{Path(command[0]).name} is not installed") from error


def stop(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask all to end, then end those that do not, with whatever they started themselves."""
    for child in children:
        _signal_group(child, signal.SIGTERM)
    for child in children:
        with suppress(subprocess.TimeoutExpired):
            child.wait(STOP_S)
        # Also after a clean end: a forked worker may have outlived its master.
        _signal_group(child, signal.SIGKILL)
        child.wait(STOP_S)


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # The group's id is the child's own pid (start_new_session); it stays taken while any member lives.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


@contextmanager
def running(command: Sequence[str], *, log: Path, cwd: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    child = start(command, log=log, cwd=cwd)
    try:
        yield child
    finally:
        stop([child])


def call(
    command: Sequence[str],
    *,
    log: Path,
    timeout_s: float,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run to the end and return what it wrote; a failure becomes one line, the rest is in its log."""
    begin = log.stat().st_size if log.exists() else 0
    child = start(command, log=log, cwd=cwd, environment=environment)
    name = " ".join(Path(part).name for part in command[:3])
    try:
        status = child.wait(timeout_s)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{name}: not done after {timeout_s:.0f} s (log: {log.name})") from error
    finally:
        stop([child])
    with log.open("rb") as file:
        file.seek(begin)
        output = file.read().decode(errors="replace")
    if status:
        raise BenchError(f"{name}: exit {status}: {last_line(log) or 'no output'}")
    return output


def last_line(log: Path) -> str:
    """The last thing a child said, for an error of one line."""
    text = log.read_text(errors="replace").strip() if log.exists() else ""
    return text.splitlines()[-1].strip()[:200] if text else ""
