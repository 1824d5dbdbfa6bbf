"""Every clock and every source of chance that the fleet's code asks, replaced in one place.

A process has its own wall clock, which a fault may step; the clock that counts time since boot cannot be stepped, and
differs between processes only in where it began.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tests.simulation.loop import Loop

BEGAN_S = 1_780_000_000.0
"""Virtual time begins here, by a correct clock."""
_BOOT_S = 5_000.0


class Clocks:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def wall_s(self) -> float:
        process = self._loop.process
        offset_ms = process.wall_offset_ms if process is not None else 0.0
        return BEGAN_S + self._loop.now_s + offset_ms / 1000

    def boot_s(self) -> float:
        process = self._loop.process
        return _BOOT_S + self._loop.now_s + (process.number * 10.0 if process is not None else 0.0)


@contextmanager
def in_place(loop: Loop, chance: random.Random) -> Iterator[None]:
    """Inside it, the modules `time`, `os`, `random` and `secrets` know only the simulation."""
    clocks = Clocks(loop)
    gmtime = time.gmtime

    def token_hex(count: int = 32) -> str:
        return chance.randbytes(count).hex()

    def clock_gettime(_id: int) -> float:
        return clocks.boot_s()

    def pid() -> int:
        return loop.process.number if loop.process is not None else 1

    def struct(seconds: float | None = None) -> Any:
        return gmtime(clocks.wall_s() if seconds is None else seconds)

    def sleep(_seconds: float) -> None:
        raise AssertionError("a simulated process may not block")

    state = random.getstate()
    random.seed(chance.getrandbits(64))
    try:
        with (
            mock.patch.object(time, "time", clocks.wall_s),
            mock.patch.object(time, "time_ns", lambda: int(clocks.wall_s() * 1e9)),
            mock.patch.object(time, "monotonic", clocks.boot_s),
            mock.patch.object(time, "monotonic_ns", lambda: int(clocks.boot_s() * 1e9)),
            mock.patch.object(time, "perf_counter", clocks.boot_s),
            mock.patch.object(time, "clock_gettime", clock_gettime),
            mock.patch.object(time, "gmtime", struct),
            mock.patch.object(time, "sleep", sleep),
            mock.patch.object(os, "getpid", pid),
            mock.patch.object(os, "urandom", chance.randbytes),
            mock.patch.object(secrets, "token_hex", token_hex),
        ):
            yield
    finally:
        random.setstate(state)
