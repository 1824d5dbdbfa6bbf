"""Metrics: histograms with fixed buckets, and the text that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, repeat
from operator import itemgetter
from typing import Literal

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
"""Upper bounds, the same everywhere: only equal buckets can be summed up over processes and releases."""
POOL_BOUNDS_S = (0.0025, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0, 900.0)
"""Those of them that are shown for each pool: every number here is a line for each of ten thousand pools."""
PLACES = tuple(str(place) for place in range(len(BOUNDS_S) + 1))
"""What the counts of a histogram's buckets are called; the last is for what is above all bounds."""
SUM_US = str(len(BOUNDS_S) + 1)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LABELS = "\0"
"""Stands in a line for its labels. No label contains it: names are printable."""
Kind = Literal["counter", "gauge"]


class Exposition:
    """Families of metrics as text, each with its help and kind, its samples together."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(
        self,
        name: str,
        kind: Kind,
        about: str,
        samples: Iterable[tuple[Mapping[str, str], float]],
    ) -> None:
        self._lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        self._lines += [f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples]

    def of_each(
        self, name: str, kind: Kind, about: str, label: str, samples: Mapping[str, Iterable[tuple[str, float]]]
    ) -> None:
        """A large family. `samples`: what stands after that label (`,more="…"` or nothing) → its values."""
        self._lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        for more, pairs in samples.items():
            self._lines += [f'{name}{{{label}="{_escaped(of)}"{more}}} {_number(value)}' for of, value in pairs]

    def histograms(
        self,
        name: str,
        about: str,
        label: str,
        counted: Iterable[tuple[str, Mapping[str, int]]],
        *,
        bounds_s: Sequence[float] = BOUNDS_S,
    ) -> None:
        """`counted`: label → as `counters.py` counts it. `bounds_s`: those of `BOUNDS_S` to show, the same for all."""
        self._lines += [f"# HELP {name} {about}", f"# TYPE {name} histogram"]
        lines_of = _Shape(name, bounds_s).lines
        for of, counts in counted:
            below = [*accumulate(map(counts.get, PLACES, repeat(0)))]
            self._lines.append(lines_of(f'{label}="{_escaped(of)}"', below, counts.get(SUM_US, 0)))

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


class _Shape:
    """The lines of a histogram, made once: those of ten thousand pools differ only in their label and the numbers."""

    def __init__(self, name: str, bounds_s: Sequence[float]) -> None:
        self._shown = itemgetter(*(BOUNDS_S.index(bound) for bound in bounds_s), len(BOUNDS_S))
        bounds = [*map(_number, bounds_s), "+Inf"]
        lines = [f'{name}_bucket{{{_LABELS},le="{bound}"}} %d' for bound in bounds]
        self._lines = "\n".join([*lines, f"{name}_sum{{{_LABELS}}} %s", f"{name}_count{{{_LABELS}}} %d"])

    def lines(self, labels: str, below: Sequence[int], sum_us: int) -> str:
        """`below`: how many there are up to each of `BOUNDS_S`, and in all."""
        if "%" in labels:
            labels = labels.replace("%", "%%")
        return self._lines.replace(_LABELS, labels) % (*self._shown(below), _number(sum_us / 1e6), below[-1])


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}"


@lru_cache(maxsize=32_768)
def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    # Epochs have sixteen digits: no exponent may round them.
    if isinstance(value, int):
        return str(value)
    return str(int(value)) if value.is_integer() else repr(value)
