"""Metrics of topics and subscriptions: what processes counted of them, and how they stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.metrics.counters import Counts, Key
from fleet.metrics.exposition import Exposition

MOST_LABELS = 512
OTHERS = "_other"
"""The label of all that have none of their own: no name begins so."""
_OF_TOPIC = {"published": "Messages published."}
_OF_SUBSCRIPTION = {
    "pulled": "Messages pulled, or taken by the router.",
    "acked": "Messages acked.",
    "nacked": "Messages nacked.",
    "expired": "Messages dropped because they were older than the retention.",
    "dead_lettered": "Messages that arrived at the dead-letter topic.",
    "full": "Messages that a full subscription did not get.",
}
_GAUGES = {
    "messages": "Messages held, in flight or not.",
    "in_flight": "Messages pulled and not acked.",
    "dead_letters_waiting": "Messages on their way to the dead-letter topic.",
    "oldest_seconds": "Age of the oldest message.",
}


@dataclass(frozen=True, slots=True)
class Standing:
    messages: int
    in_flight: int
    dead_letters_waiting: int
    oldest_seconds: float


def add_broker(
    page: Exposition,
    counted: Mapping[Key, Counts],
    *,
    topics: Iterable[str],
    standings: Mapping[str, Standing],
    subscriptions: Iterable[str],
) -> None:
    """`topics`, `subscriptions`: those that exist; the first of them have labels. `standings`: of those."""
    for kind, names, families in (
        ("topic", topics, _OF_TOPIC),
        ("subscription", subscriptions, _OF_SUBSCRIPTION),
    ):
        label_of = labels(names)
        for which, about in families.items():
            sums: dict[str, int] = dict.fromkeys(label_of.values(), 0)
            for name, label in label_of.items():
                sums[label] += counted.get((kind, name), {}).get(which, 0)
            page.of_each(f"fleet_broker_{which}_total", "counter", about, kind, {"": sums.items()})
    for which, about in _GAUGES.items():
        values = [(name, getattr(standing, which)) for name, standing in standings.items()]
        page.of_each(f"fleet_broker_{which}", "gauge", about, "subscription", {"": values})


def labels(names: Iterable[str]) -> dict[str, str]:
    """Name → label: so many have one of their own, by the alphabet."""
    return {name: name if place < MOST_LABELS else OTHERS for place, name in enumerate(sorted(names))}
