"""The table that ends a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmark.measure import BUSY_ELSEWHERE, Row, best_peer, verdicts
from benchmark.report import compares_with_peers

_KINDS = {
    "limit": "limits",
    "peer": "peers",
    "fleet": "Fleet",
    "scale": "Fleet, large",
    "pipeline": "the pipeline, and what stands beside it",
    "sqs": "the SQS door, and what stands beside it",
}
# Wide enough for all columns where the output is a file and has no width of its own.
_FILE_WIDTH = 200


def print_table(rows: Sequence[Row]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_WIDTH)
    table = Table(title="Best of each; ratios within this run", title_justify="left")
    table.add_column("what")
    table.add_column("best", justify="right", no_wrap=True)
    table.add_column("slowest", justify="right", no_wrap=True)
    table.add_column("setting")
    table.add_column("busy elsewhere", justify="right")
    table.add_column("× best peer", justify="right", no_wrap=True)
    table.add_column("µs of CPU a message")
    table.add_column("checks and budgets")
    peer = best_peer(rows)
    for kind, heading in _KINDS.items():
        chosen = [row for row in rows if row.scenario.kind == kind]
        if chosen:
            table.add_section()
            table.add_row(Text(heading, style="bold"))
        for row in chosen:
            table.add_row(*_cells(row, rows, peer))
    console.print(table)


def _cells(row: Row, rows: Sequence[Row], peer: Row | None) -> list[str | Text]:
    title = f"  {row.scenario.title}"
    if row.best is None:
        return [title, "-", "-", "", "", "", "", Text(row.error, style="red")]
    setting, best = row.best
    same = [measurement.value for tried, measurement in row.attempts if tried == setting]
    slowest = min(same) if row.scenario.better == "higher" else max(same)
    ratio = f"{best.value / peer.best[1].value:.2f}" if compares_with_peers(row) and peer and peer.best else ""
    notes = Text()
    for problem in row.problems:
        notes.append(("; " if notes else "") + problem, style="red")
    if not row.problems and "left" in best.details:
        notes.append(f"{best.details['delivered']:,} delivered, source empty")
    if best.note:
        notes.append(("; " if notes else "") + best.note)
    for verdict in verdicts(row, rows):
        notes.append(("; " if notes else "") + verdict.text, style="green" if verdict.met else "yellow")
    busy = f"{float(best.details[BUSY_ELSEWHERE]):.0%}"
    cost = cpu_of(best.details)
    return [title, f"{_figure(best.value)} {best.unit}", _figure(slowest), setting, busy, ratio, cost, notes]


def cpu_of(details: Mapping[str, float | int | str]) -> str:
    """CPU time of Fleet's processes, then of its servers; '' where it was not measured."""
    us = {name.removesuffix("_us"): float(value) for name, value in details.items() if name.endswith("_us")}
    if us.pop("redis_scripts", None) is None:
        return ""
    workers = sum(us.pop(name) for name in [name for name in us if name.startswith("worker")])
    figures = {"coordinator": us.pop("coordinator", 0.0), "workers": workers, **us}
    return ", ".join(f"{name.replace('_', ' ')} {value:.1f}" for name, value in figures.items() if value >= 0.05)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"
