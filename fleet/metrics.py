"""Metrics: histograms with fixed buckets, and the text that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
"""Upper bounds, the same everywhere: only equal buckets can be summed up over processes and releases."""
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

    def merge(self, other: Histogram) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum_us += other.sum_us

    @property
    def count(self) -> int:
        return sum(self.counts)

    def to_list(self) -> list[int]:
        """As a heartbeat carries it: a number for each bucket, those above the last bound, the sum in us."""
        return [*self.counts, self.sum_us]

    @staticmethod
    def from_list(values: Sequence[int]) -> Histogram:
        found = Histogram()
        if len(values) != len(BOUNDS_S) + 2:
            raise ValueError(f"a histogram has {len(BOUNDS_S) + 2} numbers, not {len(values)}")
        found.counts, found.sum_us = list(values[:-1]), values[-1]
        return found

    @staticmethod
    def from_places(values: Mapping[int, int]) -> Histogram:
        """Of the places of such a list that are not 0."""
        return Histogram.from_list([values.get(place, 0) for place in range(len(BOUNDS_S) + 2)])


class Histograms:
    """One process's, by what they measure and by label, as a heartbeat's `histograms` carries them."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Histogram]] = {}

    def observe(self, name: str, label: str, seconds: float) -> None:
        labels = self._of.get(name)
        if labels is None:
            labels = self._of[name] = {}
        found = labels.get(label)
        if found is None:
            found = labels[label] = Histogram()
        found.observe(seconds)

    def to_json(self) -> dict[str, dict[str, list[int]]]:
        return {name: {label: one.to_list() for label, one in labels.items()} for name, labels in self._of.items()}


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
