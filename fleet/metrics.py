"""Metrics: histograms with fixed buckets, and the text that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Literal

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
"""Upper bounds, the same everywhere: only equal buckets can be summed up over processes and releases."""
PLACES = tuple(str(place) for place in range(len(BOUNDS_S) + 1))
"""What the counts of a histogram's buckets are called; the last is for what is above all bounds."""
SUM_US = str(len(BOUNDS_S) + 1)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

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
        found = Histogram()
        found.counts = [counts.get(place, 0) for place in PLACES]
        found.sum_us = counts.get(SUM_US, 0)
        return found


class Exposition:
    """Families of metrics as text, each with its help and kind, its samples together."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(
        self, name: str, kind: Kind, about: str, samples: Iterable[tuple[Mapping[str, str], float | Histogram]]
    ) -> None:
        self._lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        for labels, value in samples:
            if isinstance(value, Histogram):
                self._histogram(name, labels, value)
            else:
                self._lines.append(f"{name}{_labels(labels)} {_number(value)}")

    def _histogram(self, name: str, labels: Mapping[str, str], value: Histogram) -> None:
        below = 0
        for bound, count in zip((*map(_number, BOUNDS_S), "+Inf"), value.counts, strict=True):
            below += count
            self._lines.append(f"{name}_bucket{_labels({**labels, 'le': bound})} {below}")
        self._lines.append(f"{name}_sum{_labels(labels)} {_number(value.sum_us / 1e6)}")
        self._lines.append(f"{name}_count{_labels(labels)} {below}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    # Epochs have sixteen digits: no exponent may round them.
    return str(int(value)) if float(value).is_integer() else repr(float(value))
