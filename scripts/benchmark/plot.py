"""The picture of a run: one bar for each row that counts messages delivered, and below for each that counts jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.measure import Row

_OURS, _OTHERS = "#d1495b", "#8d99ae"
_AXES = {
    "messages/s": "messages delivered per second (the best of each, one run, one sink)",
    "jobs/s": "jobs of the pipeline per second (the best of each, one run)",
}
_BAR_INCHES = 0.5
_FRAME_INCHES = 1.4


def draw(rows: Sequence[Row], path: Path) -> bool:
    """Write the PNG. False if there is nothing to draw; then an older one goes, too: it would not match the figures."""
    shown = {unit: [row for row in rows if row.best is not None and row.best[1].unit == unit] for unit in _AXES}
    shown = {unit: found for unit, found in shown.items() if found}
    path.unlink(missing_ok=True)
    if not shown:
        return False
    # Imported here: it takes a second, which --list and --help should not.
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    bars = [len(found) for found in shown.values()]
    height = sum(_FRAME_INCHES + _BAR_INCHES * count for count in bars)
    figure, axes = pyplot.subplots(
        len(bars), 1, figsize=(10, height), layout="constrained", squeeze=False, height_ratios=[n + 1 for n in bars]
    )
    for axis, (unit, found) in zip(axes[:, 0], shown.items(), strict=True):
        _draw(axis, found, _AXES[unit])
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True


def _draw(axis: Any, rows: Sequence[Row], title: str) -> None:
    ordered = sorted(rows, key=_value)
    titles = [row.scenario.title for row in ordered]
    colours = [_OURS if row.scenario.title.startswith("Fleet") else _OTHERS for row in ordered]
    bars = axis.barh(titles, [_value(row) for row in ordered], color=colours)
    axis.bar_label(bars, labels=[f"{_value(row):,.0f}" for row in ordered], padding=4)
    axis.set_xlabel(title)
    axis.margins(x=0.12)
    axis.spines[["top", "right"]].set_visible(False)


def _value(row: Row) -> float:
    return row.best[1].value if row.best else 0.0
