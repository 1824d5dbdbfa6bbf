"""Rounds, the best of them, and what it is held against.

All scenarios take turns in each round, rather than each doing all its rounds: a machine that is busy for a
minute then slows one round of every scenario, and the best of each still compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from redis import RedisError

from benchmark.errors import BenchError
from benchmark.ground import Ground
from benchmark.machine.load import Elsewhere
from benchmark.scenario import BEST_PEER, ITSELF, Budget, Measurement, Scenario
from fleet.errors import FleetError

BUSY_ELSEWHERE = "busy_elsewhere"


@dataclass(slots=True, kw_only=True)
class Row:
    """One scenario and all that was measured of it."""

    scenario: Scenario
    attempts: list[tuple[str, Measurement]] = field(default_factory=list)
    error: str = ""
    """Why there is no (further) figure."""

    @property
    def best(self) -> tuple[str, Measurement] | None:
        if not self.attempts:
            return None
        highest = self.scenario.better == "higher"
        return max(self.attempts, key=lambda attempt: attempt[1].value if highest else -attempt[1].value)

    @property
    def problems(self) -> list[str]:
        """Of every attempt, not of the best alone: a slower attempt that lost a message is news, too."""
        found = [problem for _, measurement in self.attempts for problem in measurement.problems]
        return [*found, self.error] if self.error else found


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A figure held against a budget."""

    text: str
    ratio: float
    met: bool


def measure(scenarios: Sequence[Scenario], ground: Ground, *, rounds: int) -> list[Row]:
    """Prepare all, then take turns. A scenario that fails is out, with its reason; the others go on."""
    rows = [Row(scenario=scenario) for scenario in scenarios]
    for row in rows:
        try:
            row.scenario.prepare(ground)
        except BenchError as error:
            _fail(row, error, ground)
    for number in range(1, rounds + 1):
        for row in rows:
            # All settings in every round: one noisy minute must not choose a peer's setting for it.
            for setting in row.scenario.settings:
                if not row.error:
                    _attempt(row, setting, f"round {number} of {rounds}", ground)
    return rows


def _attempt(row: Row, setting: str, turn: str, ground: Ground) -> None:
    name = f"{row.scenario.name} ({setting})" if setting else row.scenario.name
    ground.say(f"{name}, {turn}")
    elsewhere = Elsewhere(ground.sink.pid)
    try:
        measurement = row.scenario.attempt(ground, setting)
    except (BenchError, FleetError, RedisError) as error:
        _fail(row, error, ground)
        return
    details = {**measurement.details, BUSY_ELSEWHERE: round(elsewhere.share(), 3)}
    measurement = replace(measurement, details=details)
    row.attempts.append((setting, measurement))
    ground.measured[row.scenario.name] = max(measurement.value, ground.measured.get(row.scenario.name, 0.0))
    ground.say(f"{name}: {measurement.value:,.0f} {measurement.unit}" + "".join(f"; {p}" for p in measurement.problems))


def _fail(row: Row, error: Exception, ground: Ground) -> None:
    row.error = str(error)
    ground.say(f"{row.scenario.name}: {error}")


def best_peer(rows: Sequence[Row]) -> Row | None:
    peers = [row for row in rows if row.scenario.kind == "peer" and row.best is not None and not row.problems]
    return max(peers, key=_value, default=None)


def _value(row: Row) -> float:
    return row.best[1].value if row.best else 0.0


def verdicts(row: Row, rows: Sequence[Row]) -> list[Verdict]:
    """Each budget of a row that can be judged by what was measured in this run."""
    if row.best is None:
        return []
    by_name = {other.scenario.name: other for other in rows}
    judged = (_verdict(row, budget, by_name, best_peer(rows)) for budget in row.scenario.budgets)
    return [verdict for verdict in judged if verdict is not None]


def _verdict(row: Row, budget: Budget, by_name: Mapping[str, Row], peer: Row | None) -> Verdict | None:
    value = _value(row)
    if row.best is not None and budget.detail:
        found = row.best[1].details.get(budget.detail)
        if not isinstance(found, int | float):
            return None
        ratio, what = float(found), f"{budget.label} {found:,.4g} {budget.unit}".rstrip()
    elif budget.of == ITSELF:
        ratio, what = value, f"{value:,.4g} {row.best[1].unit if row.best else ''}"
    else:
        other = peer if budget.of == BEST_PEER else by_name.get(budget.of)
        if other is None or not _value(other):
            return None
        ratio = value / _value(other)
        what = f"{ratio:.2f} × {other.scenario.name}"
    met = (budget.at_least is None or ratio >= budget.at_least) and (budget.at_most is None or ratio <= budget.at_most)
    limits = [f"≥ {budget.at_least:g}"] if budget.at_least is not None else []
    limits += [f"≤ {budget.at_most:g}"] if budget.at_most is not None else []
    aim = f", aim {budget.aim:g}" if budget.aim is not None else ""
    return Verdict(text=f"{what} ({' and '.join(limits)}{aim}) {'ok' if met else 'MISSED'}", ratio=ratio, met=met)
