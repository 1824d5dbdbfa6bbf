"""For how long what a full pool refuses is put off: a second to half a minute.

What is put off stands at the head of its groups: away for too long, it leaves a pool that is through with what it has
without any work. Of a pool that is slow it has to be out of the way of what is for others. So one that is known to be
slow begins with half a minute, any other with a second; where the pool was idle meanwhile it is half as long the next
time, and where it always had work twice as long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fleet.clock import Clock
from fleet.outcome import MIN_RETRY_S, QUEUE_FULL_RETRY_S

_CALM_MS = 10_000.0
"""Without a refusal, beyond the time for which the last was put off."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """How much a pool takes, and how much of that it works on."""

    capacity: int
    concurrency: int


class PutOff:
    """Of each pool, as of its refusals. All that one call refuses is put off alike, so that it keeps its order."""

    def __init__(self, limits_of: Callable[[str], PoolLimits], is_slow: Callable[[str], bool], clock: Clock) -> None:
        self._limits_of = limits_of
        self._is_slow = is_slow
        self._clock = clock
        self._seconds: dict[str, int] = {}
        self._since_ms: dict[str, float] = {}
        self._was_idle: set[str] = set()
        """Pools that had less to do than they could work on while what they refused was away."""

    def seen(self, code: str, free: int) -> None:
        """How much room it had."""
        limits = self._limits_of(code)
        if code in self._seconds and free > limits.capacity - limits.concurrency:
            self._was_idle.add(code)

    def seconds(self, code: str) -> int:
        seconds = self._seconds.get(code, MIN_RETRY_S)
        if self._is_calm(code):
            return QUEUE_FULL_RETRY_S if self._is_slow(code) else MIN_RETRY_S
        return max(seconds // 2, MIN_RETRY_S) if code in self._was_idle else seconds

    def refused(self, code: str) -> None:
        now_ms, seconds = self._clock.boot_ms(), self.seconds(code)
        if not self._is_calm(code) and code not in self._was_idle:
            # Once while it is put off, however many calls are refused: each may be of another queue.
            if now_ms < self._since_ms[code] + seconds * 1000:
                return
            seconds = min(2 * seconds, QUEUE_FULL_RETRY_S)
        self._was_idle.discard(code)
        self._seconds[code], self._since_ms[code] = seconds, now_ms

    def _is_calm(self, code: str) -> bool:
        """Whether what it refused last is back for long, and was taken."""
        if code not in self._seconds:
            return True
        return self._clock.boot_ms() > self._since_ms[code] + 2 * self._seconds[code] * 1000 + _CALM_MS
