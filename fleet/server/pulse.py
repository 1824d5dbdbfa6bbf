"""Can this process do its work? It can while Redis answers its heartbeat."""

from __future__ import annotations

from fleet.clock import Clock

QUIET_MS = 3000.0
"""A heartbeat goes out each second; a call takes some ms."""


class Pulse:
    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._last_ms: float | None = None

    def beat(self, _alive: set[str]) -> None:
        self._last_ms = self._clock.boot_ms()

    @property
    def started(self) -> bool:
        return self._last_ms is not None

    @property
    def ready(self) -> bool:
        """Known without asking: a probe that waited for a hanging Redis would time out, not say no."""
        return self._last_ms is not None and self._clock.boot_ms() - self._last_ms < QUIET_MS
