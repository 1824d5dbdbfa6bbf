"""Queues that we could not work on: when each may be tried again, and what the log was told. No I/O."""

from __future__ import annotations

from fleet.clock import Clock

AFTER_ERROR_MS, AFTER_ERROR_MOST_MS, AFTER_FENCED_MS = 2000, 60_000, 500


class Setbacks:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._not_before: dict[str, float] = {}
        self._failures: dict[str, tuple[int, str]] = {}
        """How often each failed in a row, and why it did last."""

    def failed(self, name: str, reason: str) -> bool:
        """Try again later and later. Returns whether the log has to be told: once for each reason."""
        times, said = self._failures.get(name, (0, ""))
        self._failures[name] = times + 1, reason
        self._put_off(name, min(AFTER_ERROR_MS * 2**times, AFTER_ERROR_MOST_MS))
        return reason != said

    def fenced(self, name: str) -> None:
        """A pool takes us for an older owner. Whatever the reason, do not try all the time."""
        self._put_off(name, AFTER_FENCED_MS)

    def opened(self, name: str) -> None:
        """The next failure is the first again."""
        self._failures.pop(name, None)

    def may_begin(self, name: str) -> bool:
        return self._clock.boot_ms() >= self._not_before.get(name, 0.0)

    def _put_off(self, name: str, pause_ms: float) -> None:
        self._not_before[name] = self._clock.boot_ms() + pause_ms
