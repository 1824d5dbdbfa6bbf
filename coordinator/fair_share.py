"""How many queues a coordinator may own, and which it gives up when it has too many. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

COORDINATOR = "coordinator-"
"""The names of those that share the queues begin with this; one that is switched off is named otherwise."""


def coordinators_of(alive: Iterable[str]) -> set[str]:
    return {name for name in alive if name.startswith(COORDINATOR)}


def fair_share(queues: int, alive: Iterable[str]) -> int:
    """Rounded up: nobody may be left over."""
    return math.ceil(queues / len(coordinators_of(alive)))


class Surplus:
    """Queues beyond our share. They go once we have had too many for a while.

    A coordinator that restarts is missed for a moment: not every change of numbers is worth a move.
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
