"""Time, passed in. Two clocks for two questions: what time is it, and is my lease still mine."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970, for people and journals; never for leases."""

    def boot_ms(self) -> float:
        """Milliseconds that also pass while the process or the machine is suspended."""


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def boot_ms(self) -> float:
        # CLOCK_MONOTONIC stands still while a laptop sleeps, and a lease does not.
        return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000.0
