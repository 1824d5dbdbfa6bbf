"""Where a run takes place: its folders, its sink, how long it may be, and who hears of its progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmark.machine.sink import Sink

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
    say: Callable[[str], None]
    divisor: int = 1
    """How many times fewer messages than a full run takes."""
    groups: int = GROUPS
    measured: dict[str, float] = field(default_factory=dict)
    """The highest figure of each scenario so far, for those whose load depends on another's."""

    @property
    def short(self) -> bool:
        return self.divisor > 1

    def scaled(self, count: int) -> int:
        """How many messages to take where a full run takes `count`."""
        return max(1, count // self.divisor)
