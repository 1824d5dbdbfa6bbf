"""How many queues a coordinator may own, and which it gives up if it has too many. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

COORDINATOR = "coordinator-"
"""Names of coordinators that share the queues begin with this. One that is switched off has another name."""


def coordinators_of(alive: Iterable[str]) -> set[str]:
    return {name for name in alive if name.startswith(COORDINATOR)}


def fair_share(queues: int, alive: Iterable[str]) -> int:
    """Rounded up, so that no queue is left over. We are among the living ourselves."""
    return math.ceil(queues / len(coordinators_of(alive)))


class Surplus:
    """The queues beyond our share. They go once we have had too many for a while.

    When a coordinator restarts, the others miss it for a moment. That is not worth moving queues.
    """

    def __init__(self, patience_ms: float) -> None:
        self._patience_ms = patience_ms
        self._since_ms: float | None = None

    def to_give_up(self, owned: Collection[str], share: int, now_ms: float) -> list[str]:
        if len(owned) <= share:
            self._since_ms = None
        elif self._since_ms is None:
            self._since_ms = now_ms
        elif now_ms - self._since_ms > self._patience_ms:
            self._since_ms = None
            return sorted(owned)[share:]
        return []
