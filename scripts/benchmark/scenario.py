"""What every row of the table is: a scenario, its measurements, and what its figure is held against.

To add rows, put a file `fleet_*.py` beside this one with a tuple `SCENARIOS`; nothing else has to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from benchmark.ground import Ground

Kind = Literal["limit", "peer", "fleet", "scale", "pipeline"]
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


class Scenario(Protocol):
    """One row. `prepare` may install things, once a run; `attempt` starts what it needs and stops it again."""

    @property
    def name(self) -> str:
        """What --only takes."""

    @property
    def title(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    @property
    def better(self) -> Better: ...

    @property
    def settings(self) -> tuple[str, ...]:
        """Tunings to try in each round; the best counts. At least one, which may be empty."""

    @property
    def budgets(self) -> tuple[Budget, ...]: ...

    def prepare(self, ground: Ground, /) -> None: ...

    def attempt(self, ground: Ground, setting: str, /) -> Measurement: ...
