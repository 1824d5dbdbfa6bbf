"""Metrics: histograms with fixed buckets, and the text that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, repeat
from operator import itemgetter
from typing import Literal

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
"""Upper bounds, the same everywhere: only equal buckets can be summed up over processes and releases."""
POOL_BOUNDS_S = (0.0025, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0, 900.0)
"""Those of them that are shown of each pool: ten thousand pools have as many lines as this has numbers, each."""
PLACES = tuple(str(place) for place in range(len(BOUNDS_S) + 1))
"""What the counts of a histogram's buckets are called; the last is for what is above all bounds."""
SUM_US = str(len(BOUNDS_S) + 1)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LABELS = "\0"
"""Stands in a line for its labels. No label holds it: names are printable."""
Kind = Literal["counter", "gauge", "histogram"]


class Histogram:
    """How often something took how long. Costs a search in a short list each time."""

    __slots__ = ("counts", "sum_us")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_us = 0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_us += round(seconds * 1e6)

    @property
    def count(self) -> int:
        return sum(self.counts)

    @staticmethod
    def of(counts: Mapping[str, int]) -> Histogram:
        """As `fleet/counters.py` counts one: by the places of its buckets, those that are not 0, and the sum in us."""
        found = Histogram.__new__(Histogram)
        found.counts = [*map(counts.get, PLACES, repeat(0))]
        found.sum_us = counts.get(SUM_US, 0)
        return found


class Exposition:
    """Families of metrics as text, each with its help and kind, its samples together."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(
        self,
        name: str,
        kind: Kind,
        about: str,
        samples: Iterable[tuple[Mapping[str, str], float | Histogram]],
        *,
        bounds_s: Sequence[float] = BOUNDS_S,
    ) -> None:
        """`bounds_s`: of `BOUNDS_S` those that a histogram shows, the same for all of its labels."""
        self._lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        shape = _Shape(name, bounds_s)
        for labels, value in samples:
            if isinstance(value, Histogram):
                self._lines.append(shape.lines(labels, value))
            else:
                self._lines.append(f"{name}{_labels(labels)} {_number(value)}")

    def of_each(
        self, name: str, kind: Kind, about: str, label: str, samples: Mapping[str, Iterable[tuple[str, float]]]
    ) -> None:
        """A family that is large. `samples`: what stands behind that label (`,more="…"` or nothing) → its values."""
        self._lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        for more, pairs in samples.items():
            self._lines += [f'{name}{{{label}="{_escaped(of)}"{more}}} {_number(value)}' for of, value in pairs]

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


class _Shape:
    """The lines of a histogram, made once: ten thousand pools have the same but for their label and the numbers."""

    def __init__(self, name: str, bounds_s: Sequence[float]) -> None:
        self._shown = itemgetter(*(BOUNDS_S.index(bound) for bound in bounds_s), len(BOUNDS_S))
        bounds = [*map(_number, bounds_s), "+Inf"]
        lines = [f'{name}_bucket{{{_LABELS},le="{bound}"}} %d' for bound in bounds]
        self._lines = "\n".join([*lines, f"{name}_sum{{{_LABELS}}} %s", f"{name}_count{{{_LABELS}}} %d"])

    def lines(self, labels: Mapping[str, str], value: Histogram) -> str:
        below = list(accumulate(value.counts))
        lines = self._lines.replace(_LABELS, _labels(labels)[1:-1].replace("%", "%%"))
        return lines % (*self._shown(below), _number(value.sum_us / 1e6), below[-1])


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
