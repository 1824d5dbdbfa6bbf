"""For how long what a full pool refuses is put off: half a minute, or less where the pool ran out of work meanwhile.

A pool of little room may be through with what it has in a few seconds, while its own messages are away for thirty. One
that has always work loses nothing by that: what it refuses is out of the way of what is for others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from fleet.clock import Clock
from fleet.outcome import MIN_RETRY_S, QUEUE_FULL_RETRY_S

_LESS, _MORE = 0.5, 1.25


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a pool takes, and how much of that it works on."""

    capacity: int
    concurrency: int


class PutOff:
    """Of each pool, as of its refusals; the first is half a minute.

    All that one call refuses is put off alike, so that it keeps its order.
    """

    def __init__(self, limits_of: Callable[[str], Limits], clock: Clock) -> None:
        self._limits_of = limits_of
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self._was_idle: set[str] = set()
        self._changed_ms: dict[str, float] = {}

    def seen(self, code: str, free: int) -> None:
        """How much room it had: with less to do than it could work on it was idle, in part."""
        if code not in self._seconds:
            return  # it refused nothing yet
        limits = self._limits_of(code)
        if free > limits.capacity - limits.concurrency:
            self._was_idle.add(code)

    def seconds(self, code: str) -> int:
        return math.ceil(self._next(code))

    def refused(self, code: str) -> None:
        now_ms, seconds = self._clock.boot_ms(), self._next(code)
        if code in self._was_idle:
            self._was_idle.discard(code)
        elif now_ms >= self._changed_ms.get(code, now_ms) + seconds * 1000:
            # Once while it is put off, however many calls are refused: each may be of another queue.
            seconds *= _MORE
        elif code in self._seconds:
            return
        self._seconds[code], self._changed_ms[code] = seconds, now_ms

    def _next(self, code: str) -> float:
        seconds = min(self._seconds.get(code, QUEUE_FULL_RETRY_S), QUEUE_FULL_RETRY_S)
        return max(MIN_RETRY_S, seconds * _LESS) if code in self._was_idle else seconds
