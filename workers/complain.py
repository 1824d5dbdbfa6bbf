"""Logs why deliveries fail: the first failure of a kind at once, the rest as a number now and then."""

from __future__ import annotations

import logging
from collections import Counter

from fleet.clock import Clock

log = logging.getLogger("fleet.worker")

QUIET_MS = 10_000.0
_KINDS_KEPT = 1000


class Complaints:
    """An endpoint that is down fails thousands of times a second; one line in ten seconds says as much."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._said_at: dict[tuple[str, str], float] = {}
        self._unsaid: Counter[tuple[str, str]] = Counter()

    def add(self, pool: str, message_id: str, reason: str) -> None:
        kind, now = (pool, reason), self._clock.boot_ms()
        if now - self._said_at.get(kind, -QUIET_MS) < QUIET_MS:
            self._unsaid[kind] += 1
            return
        if len(self._said_at) >= _KINDS_KEPT:
            # Reasons may hold addresses and ports: without a bound this would be a leak.
            self._said_at.clear()
            self._unsaid.clear()
        more = self._unsaid.pop(kind, 0)
        log.warning(
            "%s in %s not delivered: %s%s", message_id, pool, reason, f" (and {more} more like it)" if more else ""
        )
        self._said_at[kind] = now
