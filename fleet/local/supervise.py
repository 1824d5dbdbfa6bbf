"""Child processes of one command: started in stages, restarted when they die, stopped in the opposite order.

Nothing stays behind: a child that ignores SIGTERM is killed after a while, and when we are killed ourselves the
kernel signals the children.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleet.waiting import Backoff, happens

log = logging.getLogger("fleet.supervisor")

_PAUSES_S = (0.2, 10.0)
_HEALTHY_S = 30.0
"""A child that lived this long starts again without the pause that earlier deaths had earned."""
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One child: what it is called, how it is started, how long its clean end may take."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    stop_within_s: float
    output: Path | None = None
    """The file that its output is appended to; None: it goes where ours goes."""


def fleet_command(*arguments: str) -> tuple[str, ...]:
    """A `fleet` command for this very interpreter. Secrets go through the environment: anybody can see arguments."""
    return (sys.executable, "-P", "-m", "fleet.cli", *arguments)


def child_environment(base: Mapping[str, str], **changes: str) -> dict[str, str]:
    """The environment for a child, with our own import path: it runs the code that we run."""
    return {**base, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **changes}


class _Child:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.process: subprocess.Popen[bytes] | None = None
        self.started_s = 0.0
        self.ended = asyncio.Event()
        self.backoff = Backoff(*_PAUSES_S)
        self.is_removed = False


class Supervisor:
    """`stages` start in the order given, all at once within one, and stop in the opposite order."""

    def __init__(
        self,
        *,
        stages: Sequence[Sequence[Program]],
        orphan_signal: signal.Signals = signal.SIGTERM,
        is_final: Callable[[Program, int], Awaitable[bool]] | None = None,
    ) -> None:
        self._stages = [[_Child(program) for program in stage] for stage in stages]
        self._orphan_signal = orphan_signal
        self._is_final = is_final
        self._over = asyncio.Event()
        self._hurry = asyncio.Event()
        self._keepers: list[asyncio.Task[None]] = []
        self.exit_code = 0

    def stop(self) -> None:
        """Begin to stop; called again, wait for nobody."""
        if self._over.is_set():
            self._hurry.set()
        self._over.set()

    @property
    def stopping(self) -> bool:
        return self._over.is_set()

    def pids(self) -> dict[str, int]:
        """The children that run now, by their program's name."""
        return {
            child.program.name: child.process.pid
            for stage in self._stages
            for child in stage
            if child.process is not None and not child.ended.is_set()
        }

    def start(self) -> None:
        for stage in self._stages:
            for child in stage:
                self._begin(child)

    def _begin(self, child: _Child) -> None:
        self._spawn(child)
        keeper = asyncio.get_running_loop().create_task(self._keep(child))
        keeper.add_done_callback(self._check)
        self._keepers.append(keeper)

    def add(self, program: Program) -> None:
        """One more, in a stage of its own: it stops first."""
        child = _Child(program)
        self._stages.append([child])
        if not self._over.is_set():
            self._begin(child)

    async def remove(self, name: str) -> None:
        """Stop the children of that name, for good."""
        for stage in self._stages:
            for child in [child for child in stage if child.program.name == name]:
                child.is_removed = True
                await self._end(child)
                stage.remove(child)

    async def run(self) -> int:
        """Run until `stop`, or until a child's end was final. Returns the exit code."""
        if not self._keepers:
            self.start()
        try:
            await self._over.wait()
        finally:
            await self._stop_all()
        return self.exit_code

    # A child's life -------------------------------------------------------------------------------

    def _spawn(self, child: _Child) -> None:
        child.ended = asyncio.Event()
        child.started_s = time.monotonic()
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(child.program.output.open("ab")) if child.program.output else None
            child.process = subprocess.Popen(
                child.program.command,
                env=dict(child.program.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # A session of its own: Ctrl-C reaches us alone, and we stop them in order.
                start_new_session=True,
                preexec_fn=_dies_with(os.getpid(), self._orphan_signal),
            )
        # Readable as soon as the process ends: no polling, no SIGCHLD handler for others to overwrite.
        descriptor = os.pidfd_open(child.process.pid)
        asyncio.get_running_loop().add_reader(descriptor, self._on_end, child, descriptor)

    def _on_end(self, child: _Child, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        assert child.process is not None
        child.process.wait()
        child.ended.set()

    async def _keep(self, child: _Child) -> None:
        while True:
            await child.ended.wait()
            if self._over.is_set() or child.is_removed:
                return
            assert child.process is not None
            code = child.process.returncode
            if self._is_final is not None and await self._is_final(child.program, code):
                log.error("%s ended %s; that is final", child.program.name, _how(code))
                self.exit_code = 1
                self._over.set()
                return
            if time.monotonic() - child.started_s > _HEALTHY_S:
                child.backoff.renew()
            pause_s = child.backoff.spend()
            log.warning("%s ended %s; starts again in %.1f s", child.program.name, _how(code), pause_s)
            if await happens(self._over, within_s=pause_s) or child.is_removed:
                return
            self._spawn(child)

    def _check(self, keeper: asyncio.Task[None]) -> None:
        if not keeper.cancelled() and (error := keeper.exception()) is not None:
            log.error("cannot supervise", exc_info=error)
            self.exit_code = 1
            self._over.set()

    # The end --------------------------------------------------------------------------------------

    async def _stop_all(self) -> None:
        self._over.set()
        for stage in reversed(self._stages):
            await asyncio.gather(*(self._end(child) for child in stage))
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    async def _end(self, child: _Child) -> None:
        if child.process is None or child.ended.is_set():
            return
        child.process.terminate()
        hurry = asyncio.ensure_future(self._hurry.wait())
        ended = asyncio.ensure_future(child.ended.wait())
        await asyncio.wait({hurry, ended}, timeout=child.program.stop_within_s, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not child.ended.is_set():
            log.warning("%s does not stop and is killed", child.program.name)
            child.process.kill()
        await ended


def on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on Ctrl-C, SIGTERM and a closed terminal."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # nohup says that a closed terminal is no reason to end.
        if number != signal.SIGHUP or signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            loop.add_signal_handler(number, stop)


def _how(code: int) -> str:
    return f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"


def _dies_with(parent: int, number: int) -> Callable[[], None]:
    libc = ctypes.CDLL(None, use_errno=True)

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:
            # The parent died between the fork and the line above, and no signal will tell us.
            os._exit(1)

    return before_exec
