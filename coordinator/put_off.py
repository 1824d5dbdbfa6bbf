"""How long messages that a full pool refuses are put off: a second to half a minute.

They are at the head of their groups. If they stay away for too long, the pool finishes what it has and runs out of
work. If the pool is slow, they have to be out of the way of messages for other pools. So a pool that is known to be
slow begins with half a minute, any other with a second. The next time is half as long if the pool was idle meanwhile,
and twice as long if it always had work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fleet.clock import Clock
from fleet.outcome import MIN_RETRY_S, QUEUE_FULL_RETRY_S

_CALM_MS = 10_000.0
"""A pool begins anew if it refuses nothing for this long, counted from when the last refused messages are back."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """How much a pool takes, and how much of that it works on."""

    capacity: int
    concurrency: int


class PutOff:
    """Kept for each pool. All that one call refuses is put off equally long, so that it keeps its order."""

    def __init__(self, limits_of: Callable[[str], PoolLimits], is_slow: Callable[[str], bool], clock: Clock) -> None:
        self._limits_of = limits_of
        self._is_slow = is_slow
        self._clock = clock
        self._seconds: dict[str, int] = {}
        self._since_ms: dict[str, float] = {}
        self._was_idle: set[str] = set()
        """Pools that had less to do than they could work on, while what they had refused was away."""

    def seen(self, code: str, free: int) -> None:
        """A pool was seen to have this much room."""
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
            # While messages are put off, refusals count once: each call may be for another queue.
            if now_ms < self._since_ms[code] + seconds * 1000:
                return
            seconds = min(2 * seconds, QUEUE_FULL_RETRY_S)
        self._was_idle.discard(code)
        self._seconds[code], self._since_ms[code] = seconds, now_ms

    def _is_calm(self, code: str) -> bool:
        """Whether what the pool refused last came back a while ago, and was taken."""
        if code not in self._seconds:
            return True
        return self._clock.boot_ms() > self._since_ms[code] + 2 * self._seconds[code] * 1000 + _CALM_MS
