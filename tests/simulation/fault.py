"""A fault begins at its time, draws what it needs from its own seed and ends by itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world import World

Fault = Callable[["World", random.Random], str]
"""Returns what it did, for the trace."""
CARRIED_OUT: dict[str, Fault] = {}
"""Those of `faults.py` and `operators.py`, which register here."""


def fault(kind: str) -> Callable[[Fault], Fault]:
    def note(carried_out: Fault) -> Fault:
        CARRIED_OUT[kind] = carried_out
        return carried_out

    return note
