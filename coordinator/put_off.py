"""For how long what a full pool refuses is put off: half a minute, or less where the pool ran out of work meanwhile.

A pool of little room may be through with what it has in a few seconds, while its own messages are away for thirty. One
that has always work loses nothing by that: what it refuses is out of the way of what is for others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

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

    def __init__(self, limits_of: Callable[[str], Limits]) -> None:
        self._limits_of = limits_of
        self._seconds: dict[str, float] = {}
        self._was_idle: set[str] = set()

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
        self._seconds[code] = self._next(code) * (1 if code in self._was_idle else _MORE)
        self._was_idle.discard(code)

    def _next(self, code: str) -> float:
        seconds = min(self._seconds.get(code, QUEUE_FULL_RETRY_S), QUEUE_FULL_RETRY_S)
        return max(MIN_RETRY_S, seconds * _LESS) if code in self._was_idle else seconds
