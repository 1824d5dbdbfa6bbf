"""What the demo saw: each event's way from being added to being accepted, group by group."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from rich import box
from rich.table import Table

from fleet.jobs.records import NewEvent
from fleet.operate.journal import End, Record
from fleet.words import number

_GROUPS_SHOWN = 8


@dataclasses.dataclass(slots=True)
class GroupTally:
    """What became of one group."""

    sent: int = 0
    delivered: int = 0
    out_of_order: int = 0
    duplicates: int = 0
    latencies_ms: list[float] = dataclasses.field(default_factory=list)
    last_seq: int = -1

    def add(self, other: GroupTally) -> None:
        self.sent += other.sent
        self.delivered += other.delivered
        self.out_of_order += other.out_of_order
        self.duplicates += other.duplicates
        self.latencies_ms += other.latencies_ms

    @property
    def ok(self) -> bool:
        return self.delivered == self.sent and not self.out_of_order


class DemoTally:
    """Joins the events that were added with what the endpoint journals."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupTally] = {}
        self.delivered = 0
        self._sent: dict[str, tuple[str, int, float]] = {}
        self._done: set[str] = set()

    def sent(self, events: Sequence[NewEvent], now_ms: float) -> None:
        for event in events:
            group = event.msg_group or ""
            self._sent[event.id] = group, len(self._sent), now_ms
            self.groups.setdefault(group, GroupTally()).sent += 1

    def place_of(self, event_id: str) -> int:
        """Its place among all events, in the order of adding."""
        return self._sent[event_id][1]

    def accepted(self, end: End) -> None:
        # A job's id is its event's id and then a hash.
        event_id = end.id.rpartition(".")[0]
        if not 200 <= end.status <= 299 or event_id not in self._sent:
            return
        name, seq, sent_ms = self._sent[event_id]
        group = self.groups[name]
        if event_id in self._done:
            group.duplicates += 1
            return
        self._done.add(event_id)
        self.delivered += 1
        group.delivered += 1
        group.latencies_ms.append(max(0.0, end.t - sent_ms))
        group.out_of_order += seq < group.last_seq
        group.last_seq = max(group.last_seq, seq)

    @property
    def total(self) -> GroupTally:
        total = GroupTally()
        for group in self.groups.values():
            total.add(group)
        return total


class Tail:
    """The records that a journal has grown by since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._decode = msgspec.json.Decoder(Record).decode

    def read(self) -> Iterator[Record]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # still being written
                self._offset += len(line)
                yield self._decode(line)


def table_of(tally: DemoTally) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("group", no_wrap=True)
    for title in ("sent", "delivered", "out of order", "duplicates", "p50 ms", "p99 ms"):
        table.add_column(title, justify="right")
    names = sorted(tally.groups, key=lambda name: (len(name), name))
    for name in names[:_GROUPS_SHOWN]:
        table.add_row(*_row(name, tally.groups[name]))
    if len(names) > _GROUPS_SHOWN:
        table.add_row(f"… {len(names) - _GROUPS_SHOWN} more", *[""] * 6)
    table.add_section()
    table.add_row(*_row(f"all {number(len(names), 'group')}", tally.total), style="bold")
    return table


def _row(name: str, group: GroupTally) -> list[str]:
    counts = (group.sent, group.delivered, group.out_of_order, group.duplicates)
    return [name, *(f"{n:,}" for n in counts), *(f"{percentile(group.latencies_ms, p):,.0f}" for p in (0.5, 0.99))]


def percentile(values: list[float], share: float) -> float:
    """The smallest value that this share of the values does not exceed; 0 if there are none."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
