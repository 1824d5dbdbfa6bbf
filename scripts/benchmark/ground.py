"""Where a run takes place: its folders, its sink, how long it may be, and who hears of its progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmark.sink import Sink

GROUPS = 2_000
SHORT_DIVISOR = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    repository: Path
    out: Path
    """Kept between runs: the peers' environments, the figures."""
    scratch: Path
    """Emptied before each run: logs, sockets, queues."""
    sink: Sink
    short: bool
    say: Callable[[str], None]
    groups: int = GROUPS

    def scaled(self, count: int) -> int:
        """How many messages to take where a full run takes `count`."""
        return max(1, count // SHORT_DIVISOR) if self.short else count
