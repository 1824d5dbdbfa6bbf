"""What every row of the table is: a scenario, its measurements, and what its figure is held against.

To add rows, write a module with a tuple `SCENARIOS` and name it in `ROWS` of cli.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from benchmark.ground import Ground

Kind = Literal["limit", "peer", "fleet", "scale", "pipeline", "sqs"]
Better = Literal["higher", "lower"]

BEST_PEER = "best peer"
ITSELF = "itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One attempt's figure. `problems` are broken promises (lost, duplicated, left over), not slowness."""

    value: float
    unit: str = "messages/s"
    problems: tuple[str, ...] = ()
    details: Mapping[str, float | int | str] = field(default_factory=dict)
    note: str = ""
    """What has to stand beside the figure for it to be read rightly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A line that the figure should stay above or below: the ratio to another row, or the figure itself."""

    of: str = BEST_PEER
    """BEST_PEER, ITSELF, or the name of another scenario of the same run."""
    at_least: float | None = None
    at_most: float | None = None
    aim: float | None = None
    """What we would like; missing it is not missing the budget."""
    detail: str = ""
    """Judge this detail of the best attempt rather than its value (with ITSELF only)."""
    label: str = ""
    unit: str = ""
    """What the detail is called in the table, and its unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(ABC):
    """One row."""

    name: str
    """What --only takes."""
    title: str
    kind: Kind = "fleet"
    better: Better = "higher"
    settings: tuple[str, ...] = ("",)
    """Tunings to try in each round; the best counts. At least one, which may be empty."""
    budgets: tuple[Budget, ...] = ()

    def prepare(self, _ground: Ground) -> None:  # noqa: B027 (most have nothing to do)
        """Install what is missing, once a run. Fleet's own code is there."""

    @abstractmethod
    def attempt(self, ground: Ground, setting: str, /) -> Measurement:
        """Start what it needs, measure, and stop it again."""
