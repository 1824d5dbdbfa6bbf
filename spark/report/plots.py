"""The plots, as PNG: each for a bright and a dark page, and for a wide and a narrow one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from fleet.words import number
from spark.report.findings import Findings, Row
from spark.report.words import OUTCOMES, count, duration, endpoint_name

_DPI = 200
_ENDPOINTS = 10
_FEWEST_STEPS = 8
_LONGEST_NAME = {True: 44, False: 90}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Colours and size of one variant."""

    suffix: str
    narrow: bool
    ink: str
    muted: str
    grid: str
    marks: tuple[str, str, str]
    """Of p50, p95 and p99."""
    outcomes: tuple[str, ...]
    """In the order of `OUTCOMES`."""


_BRIGHT: dict[str, Any] = {
    "ink": "#1c2733", "muted": "#5c6b7a", "grid": "#e3e8ee", "marks": ("#1f6f8b", "#e09f3e", "#c8553d"),
    "outcomes": ("#2a8f86", "#d1495b", "#8f5bb5", "#e09f3e", "#8795a5", "#54657a"),
}  # fmt: skip
_DARK: dict[str, Any] = {
    "ink": "#e6edf3", "muted": "#9aa7b4", "grid": "#2a333d", "marks": ("#6cc3df", "#f0bd6a", "#f0846c"),
    "outcomes": ("#4fbfb3", "#ef7a88", "#b78ad9", "#f0bd6a", "#7c8a99", "#a9b7c6"),
}  # fmt: skip
LOOKS = (
    Variant(suffix="", narrow=False, **_BRIGHT),
    Variant(suffix="-dark", narrow=False, **_DARK),
    Variant(suffix="-narrow", narrow=True, **_BRIGHT),
    Variant(suffix="-narrow-dark", narrow=True, **_DARK),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    name: str
    says: str
    """For people who cannot see the picture."""
    draw: Callable[[Axes, Findings, Variant], None]
    height: Callable[[Findings], float] = lambda _: 3.0
    """In inches."""


def draw(findings: Findings, folder: Path) -> list[str]:
    """Write every plot that has something to show; returns their names."""
    for plot in PLOTS:
        for look in LOOKS:
            (folder / f"{plot.name}{look.suffix}.png").unlink(missing_ok=True)
    if not findings.messages:
        return []
    for plot in PLOTS:
        for look in LOOKS:
            _render(plot, findings, look, folder / f"{plot.name}{look.suffix}.png")
    return [plot.name for plot in PLOTS]


def _render(plot: Plot, findings: Findings, look: Variant, file: Path) -> None:
    figure = Figure(figsize=(3.9 if look.narrow else 8.0, plot.height(findings)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.tick_params(colors=look.muted, labelsize=9, length=0)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(look.grid)
    plot.draw(axes, findings, look)
    figure.savefig(file, dpi=_DPI, transparent=True)


# Over time ------------------------------------------------------------------------------------------


def _outcomes(axes: Axes, findings: Findings, look: Variant) -> None:
    times, buckets = _filled(findings)
    width = findings.step_ms / 86_400_000
    bottom = [0] * len(times)
    for (column, words), colour in zip(OUTCOMES.items(), look.outcomes, strict=True):
        heights = [bucket[column] if bucket else 0 for bucket in buckets]
        if any(heights):
            centers = [time + width / 2 for time in times]
            axes.bar(centers, heights, width * 0.86, bottom=bottom, color=colour, label=words, linewidth=0)
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count(round(value))))
    _with_time(axes, times, width, look)


def _latency(axes: Axes, findings: Findings, look: Variant) -> None:
    times, buckets = _filled(findings)
    width = findings.step_ms / 86_400_000
    centers = [time + width / 2 for time in times]
    for column, colour in zip(("p50_ms", "p95_ms", "p99_ms"), look.marks, strict=True):
        values = [_number(bucket, column) for bucket in buckets]
        axes.plot(centers, values, color=colour, linewidth=1.8, marker="o", markersize=3.2, label=column[:-3])
    _in_durations(axes, findings.timeline)
    _with_time(axes, times, width, look)


def _with_time(axes: Axes, times: Sequence[float], width: float, look: Variant) -> None:
    axes.grid(axis="y", color=look.grid, linewidth=0.8)
    most = 4 if look.narrow else 8
    locator = AutoDateLocator(minticks=3, maxticks=most, tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    offsets = ["", "%Y", "%B %Y", "%-d %B", "%-d %B", "%-d %B"]
    formatter = ConciseDateFormatter(locator, tz=UTC, offset_formats=offsets)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)
    axes.xaxis.get_offset_text().set(color=look.muted, size=9)
    # One bar alone would have no room for the labels of the axis.
    spare = max(0.3, (_FEWEST_STEPS - len(times)) / 2) * width
    axes.set_xlim(times[0] - spare, times[-1] + width + spare)
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=2 if look.narrow else 6, frameon=False, labelcolor=look.ink,
        fontsize=9, handlelength=1.0, columnspacing=1.4, borderaxespad=0.2,
    )  # fmt: skip


def _filled(findings: Findings) -> tuple[list[float], list[Row | None]]:
    """Every step from the first to the last, including those in which nothing was sent."""
    known = {row["bucket_ms"]: row for row in findings.timeline}
    steps = range(min(known), max(known) + 1, findings.step_ms)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    times = [_days(epoch + timedelta(milliseconds=step)) for step in steps]
    return times, [known.get(step) for step in steps]


def _days(moment: datetime) -> float:
    return float(date2num(moment))  # type: ignore[no-untyped-call]


# By endpoint, by attempts ---------------------------------------------------------------------------


def slowest(findings: Findings) -> list[Row]:
    timed = [row for row in findings.endpoints if row["p95_ms"] is not None]
    return sorted(timed, key=lambda row: (-row["p95_ms"], row["endpoint"]))[:_ENDPOINTS]


def _endpoints(axes: Axes, findings: Findings, look: Variant) -> None:
    shown = slowest(findings)
    for place, row in enumerate(shown):
        values = [row[column] for column in ("p50_ms", "p95_ms", "p99_ms")]
        axes.plot(
            [values[0], values[2]], [place, place], color=look.grid, linewidth=5, solid_capstyle="round", zorder=1
        )
        for value, colour in zip(values, look.marks, strict=True):
            axes.scatter([value], [place], s=44, color=colour, linewidths=0, zorder=2)
        name = _shortened(endpoint_name(row["endpoint"]), _LONGEST_NAME[look.narrow])
        axes.annotate(
            name, (0, place), xycoords=("axes fraction", "data"), xytext=(0, 9), textcoords="offset points",
            color=look.ink, fontsize=9,
        )  # fmt: skip
    for column, colour in zip(("p50", "p95", "p99"), look.marks, strict=True):
        axes.scatter([], [], s=44, color=colour, linewidths=0, label=column)
    axes.set_ylim(len(shown) - 0.5, -0.8)
    axes.yaxis.set_major_locator(NullLocator())
    axes.grid(axis="x", color=look.grid, linewidth=0.8)
    _in_durations(axes, shown, horizontal=True)
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, labelcolor=look.ink, fontsize=9,
        handletextpad=0.1, columnspacing=1.2, borderaxespad=0.2,
    )  # fmt: skip


def _tries(axes: Axes, findings: Findings, look: Variant) -> None:
    rows = tries_shown(findings)
    most = max(row["messages"] for row in rows)
    for place, row in enumerate(rows):
        rest = row["messages"] - row["delivered"]
        axes.barh(place, row["delivered"], 0.62, color=look.outcomes[0], linewidth=0)
        axes.barh(place, rest, 0.62, left=row["delivered"], color=look.outcomes[1], linewidth=0)
        told = count(row["messages"]) + (f" ({count(rest)} not delivered)" if rest else "")
        axes.annotate(
            told, (row["messages"], place), xytext=(5, 0), textcoords="offset points", va="center", color=look.ink,
            fontsize=9,
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), [row["label"] for row in rows], color=look.ink)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, most * (1.6 if look.narrow else 1.25))
    axes.xaxis.set_major_locator(NullLocator())
    axes.spines["bottom"].set_visible(False)


def tries_shown(findings: Findings) -> list[dict[str, Any]]:
    """One attempt to five, and the rest together."""
    rows: list[dict[str, Any]] = []
    for row in sorted(findings.tries, key=lambda one: one["tries"]):
        if row["tries"] <= 5:
            rows.append({"label": number(row["tries"], "attempt"), **row})
        elif rows and rows[-1]["tries"] > 5:
            for column in ("messages", "delivered"):
                rows[-1][column] += row[column]
        else:
            rows.append({**row, "label": "6 or more"})
    return rows


def _in_durations(axes: Axes, rows: Sequence[Row], *, horizontal: bool = False) -> None:
    """The axis begins at 0, unless the largest value would squash the others into one line: then it is logarithmic."""
    values = [max(1.0, row[column]) for row in rows for column in ("p50_ms", "p99_ms") if row[column] is not None]
    low, high = min(values, default=1.0), max(values, default=1.0)
    axis = axes.xaxis if horizontal else axes.yaxis
    if high > 30 * low:
        (axes.set_xscale if horizontal else axes.set_yscale)("log", nonpositive="clip")
        (axes.set_xlim if horizontal else axes.set_ylim)(low / 1.6, high * 1.6)
        axis.set_major_locator(LogLocator(10, numticks=5))
        axis.set_minor_locator(NullLocator())
    else:
        (axes.set_xlim if horizontal else axes.set_ylim)(0, high * 1.08)
        axis.set_major_locator(MaxNLocator(4 if horizontal else 5))
    axis.set_major_formatter(FuncFormatter(lambda value, _: "0" if value == 0 else _tick(value)))


def _tick(ms: float) -> str:
    return f"{ms:g} ms" if ms < 10 else duration(ms)


def _number(row: Row | None, column: str) -> float:
    value = row[column] if row else None
    return float("nan") if value is None else float(value)


def _shortened(text: str, longest: int) -> str:
    # A dollar sign would begin a formula.
    return (text if len(text) <= longest else f"{text[: longest // 2]}…{text[-longest // 2 :]}").replace("$", r"\$")


PLOTS = (
    Plot(name="outcomes", says="Attempts over time, by outcome", draw=_outcomes),
    Plot(name="latency", says="Latency over time: p50, p95 and p99", draw=_latency),
    Plot(
        name="endpoints", says="Latency of the slowest endpoints: p50, p95 and p99", draw=_endpoints,
        height=lambda findings: 0.9 + 0.52 * max(1, len(slowest(findings))),
    ),
    Plot(
        name="tries", says="How many attempts a message needed", draw=_tries,
        height=lambda findings: 0.3 + 0.42 * len(tries_shown(findings)),
    ),
)  # fmt: skip
