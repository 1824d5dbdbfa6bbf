"""The picture of a run: one bar for each row that counts messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmark.measure import Row
from benchmark.report import compares_with_peers

_COLOURS = {"peer": "#8d99ae", "fleet": "#d1495b"}
_BAR_INCHES = 0.5
_FRAME_INCHES = 1.4


def draw(rows: Sequence[Row], path: Path) -> bool:
    """Write the PNG. False if there is nothing to draw; then an older one goes, too: it would not match the figures."""
    shown = [row for row in rows if row.best is not None and compares_with_peers(row)]
    path.unlink(missing_ok=True)
    if not shown:
        return False
    # Imported here: it takes a second, which --list and --help should not.
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    shown.sort(key=lambda row: row.best[1].value if row.best else 0.0)
    values = [row.best[1].value for row in shown if row.best]
    figure, axes = pyplot.subplots(figsize=(10, _FRAME_INCHES + _BAR_INCHES * len(shown)), layout="constrained")
    titles = [row.scenario.title for row in shown]
    bars = axes.barh(titles, values, color=[_COLOURS.get(row.scenario.kind, "#8d99ae") for row in shown])
    axes.bar_label(bars, labels=[f"{value:,.0f}" for value in values], padding=4)
    axes.set_xlabel("messages delivered per second (the best of each, one run, one sink)")
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True
