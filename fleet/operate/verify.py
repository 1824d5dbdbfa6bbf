"""Judge a run by its journals: was every message delivered, once, in order, and one at a time in its group?

A group belongs to a pool: the same name in two pools is two groups, which know nothing of each other. The pool is the
one that the message was sent to, if that is journalled, even if another one took it on its way.

What counts as accepted is what the endpoint did, not what the sender learnt of it: an `end` with a status
2xx. A request whose sender was killed meanwhile is accepted all the same; its redelivery is a duplicate.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.operate.journal import End, SentRecord, Start, read
from fleet.words import number

_FENCED_STATUS = 412
_NO_EPOCH = -1


@dataclass(slots=True)
class Judgement:
    """Counts, and the first example of each thing found."""

    duplicates_allowed: int | None = None
    sent: int = 0
    """Distinct messages that a queue accepted."""
    groups: int = 0
    requests: int = 0
    refused: int = 0
    """Requests answered 412: a fencing endpoint knew a newer epoch."""
    accepted: int = 0
    """Distinct messages that an endpoint accepted."""
    lost: int = 0
    duplicates: int = 0
    """Acceptances after the first of a message."""
    inversions: int = 0
    """First acceptances after one of a message that was sent later in the same group."""
    overlaps: int = 0
    """Requests that began while another of the group was in progress, under the same epoch or a later one."""
    overlaps_by_fenced: int = 0
    """Likewise, but all of those in progress had a lower epoch: left by a worker that was killed or stopped."""
    unknown: int = 0
    """Messages accepted that no journal says were sent. Shown, not judged: their producer may have been killed."""
    unfinished: int = 0
    """Requests without an end. Shown, not judged: the endpoint was killed, or is still working on them."""
    examples: dict[str, str] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        """What makes this verdict bad, in words."""
        found = [
            number(count, *names)
            for names, count in (
                (("lost", "lost"), self.lost),
                (("inversion",), self.inversions),
                (("overlap",), self.overlaps),
                (("overlap by fenced", "overlaps by fenced"), self.overlaps_by_fenced),
            )
            if count
        ]
        if self.duplicates_allowed is not None and self.duplicates > self.duplicates_allowed:
            found.append(f"{number(self.duplicates, 'duplicate')}, more than {self.duplicates_allowed}")
        if not self.sent:
            # An empty journal proves nothing, and a check that passes on nothing hides a broken run.
            found.append("no message was sent")
        return found

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def exit_code(self) -> int:
        return 0 if self.ok else 1

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "problems": self.problems,
            "sent": self.sent,
            "groups": self.groups,
            "requests": self.requests,
            "refused": self.refused,
            "accepted": self.accepted,
            "lost": self.lost,
            "duplicates": self.duplicates,
            "duplicatesAllowed": self.duplicates_allowed,
            "inversions": self.inversions,
            "overlaps": self.overlaps,
            "overlapsByFenced": self.overlaps_by_fenced,
            "unknown": self.unknown,
            "unfinished": self.unfinished,
            "examples": self.examples,
        }

    def table(self) -> str:
        """For people: a line for each count, the first example beside it."""
        rows = [
            ("sent", self.sent, f"in {number(self.groups, 'group')}"),
            ("requests", self.requests, f"{self.refused} refused as fenced, {self.unfinished} without an end"),
            ("accepted", self.accepted, ""),
            ("lost", self.lost, self.examples.get("lost", "")),
            ("duplicates", self.duplicates, self.examples.get("duplicates", "")),
            ("inversions", self.inversions, self.examples.get("inversions", "")),
            ("overlaps", self.overlaps, self.examples.get("overlaps", "")),
            ("overlaps by fenced", self.overlaps_by_fenced, self.examples.get("overlaps_by_fenced", "")),
            ("unknown", self.unknown, self.examples.get("unknown", "")),
        ]
        lines = [f"{name:<20}{count:>10,}  {note}".rstrip() for name, count, note in rows]
        return "\n".join([*lines, "ok" if self.ok else "FAILED: " + "; ".join(self.problems)])


@dataclass(slots=True)
class _Message:
    """One message as it was sent. Order is known within a group of one journal: two producers have no common seq."""

    group: tuple[int, str] | None
    pool: str
    """The one it was sent to; empty in journals that do not say."""
    seq: int
    accepted: bool = False


@dataclass(slots=True, eq=False)
class _Request:
    id: str
    epoch: int
    t: float
    overlaps: _Request | None = None
    """The request of the group that was in progress when this one began; if there were several, one with at least this
    epoch."""


def verify(paths: Sequence[str | Path], *, duplicates_allowed: int | None = None) -> Judgement:
    """Read the journals, in any order, twice each; only the messages' ids, and what is open, stay in memory."""
    verdict = Judgement(duplicates_allowed=duplicates_allowed)
    messages = _sent_messages(paths)
    verdict.sent = len(messages)
    verdict.groups = len({(message.pool, message.group) for message in messages.values() if message.group})
    order = _Order(verdict, messages)
    progress = _Progress(verdict, messages)
    for record in _in_order_of_time(paths):
        if isinstance(record, Start):
            progress.start(record)
        else:
            progress.end(record)
            if 200 <= record.status <= 299:
                order.accept(record)
    progress.finish()
    for message_id, message in messages.items():
        if not message.accepted:
            verdict.lost += 1
            group = message.group[1] if message.group else "none"
            verdict.examples.setdefault("lost", f"{message_id}, group {group}, seq {message.seq}")
    return verdict


def _sent_messages(paths: Iterable[str | Path]) -> dict[str, _Message]:
    messages: dict[str, _Message] = {}
    for journal, path in enumerate(paths):
        for record in read(path):
            if isinstance(record, SentRecord):
                group = (journal, record.group) if record.group else None
                messages.setdefault(record.id, _Message(group, record.pool or "", record.seq))
    return messages


def _in_order_of_time(paths: Iterable[str | Path]) -> Iterator[Start | End]:
    """Requests of all journals. Within one journal its own order stands, whatever its machine's clock did."""

    def requests(path: str | Path) -> Iterator[Start | End]:
        return (record for record in read(path) if not isinstance(record, SentRecord))

    return heapq.merge(*(requests(path) for path in paths), key=lambda record: record.t)


class _Order:
    """First acceptances against the order of sending."""

    def __init__(self, verdict: Judgement, messages: dict[str, _Message]) -> None:
        self._verdict = verdict
        self._messages = messages
        # pool and group → highest seq accepted, and whose
        self._latest: dict[tuple[str, tuple[int, str]], tuple[int, str]] = {}
        self._unknown: set[str] = set()

    def accept(self, end: End) -> None:
        message = self._messages.get(end.id)
        again = message.accepted if message is not None else end.id in self._unknown
        if again:
            self._verdict.duplicates += 1
            self._verdict.examples.setdefault("duplicates", f"{end.id}, group {end.group}, again at {end.t:.1f}")
            return
        self._verdict.accepted += 1
        if message is None:
            self._unknown.add(end.id)
            self._verdict.unknown += 1
            self._verdict.examples.setdefault("unknown", f"{end.id}, group {end.group}")
            return
        message.accepted = True
        if message.group is None:
            return
        group = _pool_of(message, end), message.group
        latest = self._latest.get(group)
        if latest is not None and message.seq < latest[0]:
            self._verdict.inversions += 1
            self._verdict.examples.setdefault(
                "inversions", f"{end.id} (seq {message.seq}) after {latest[1]} (seq {latest[0]}), group {end.group}"
            )
        else:
            self._latest[group] = (message.seq, end.id)


def _pool_of(message: _Message | None, request: Start | End) -> str:
    sent_to = message.pool if message is not None else ""
    return sent_to or request.pool or ""


class _Progress:
    """Requests between their start and their end, by pool and group."""

    def __init__(self, verdict: Judgement, messages: dict[str, _Message]) -> None:
        self._verdict = verdict
        self._messages = messages
        self._open: dict[tuple[str, str | None], list[_Request]] = {}

    def _line(self, record: Start | End) -> tuple[str, str | None]:
        return _pool_of(self._messages.get(record.id), record), record.group

    def start(self, start: Start) -> None:
        self._verdict.requests += 1
        request = _Request(start.id, _NO_EPOCH if start.epoch is None else start.epoch, start.t)
        others = self._open.setdefault(self._line(start), [])
        if others and start.group:
            request.overlaps = next((other for other in others if other.epoch >= request.epoch), others[0])
        others.append(request)

    def end(self, end: End) -> None:
        if end.status == _FENCED_STATUS:
            self._verdict.refused += 1
        epoch = _NO_EPOCH if end.epoch is None else end.epoch
        line = self._line(end)
        others = self._open.get(line, [])
        request = next((other for other in others if other.id == end.id and other.epoch == epoch), None)
        if request is None:
            return  # refused before it began
        others.remove(request)
        if not others:
            del self._open[line]
        # A late request that the endpoint refused disturbed nobody.
        if end.status != _FENCED_STATUS:
            self._judge(request, end.group)

    def finish(self) -> None:
        for (_, group), requests in self._open.items():
            for request in requests:
                self._verdict.unfinished += 1
                self._judge(request, group)

    def _judge(self, request: _Request, group: str | None) -> None:
        other = request.overlaps
        if other is None:
            return
        if other.epoch < request.epoch:
            kind = "overlaps_by_fenced"
            self._verdict.overlaps_by_fenced += 1
        else:
            kind = "overlaps"
            self._verdict.overlaps += 1
        self._verdict.examples.setdefault(
            kind,
            f"{request.id} (epoch {request.epoch}) began at {request.t:.1f} while {other.id} (epoch {other.epoch}) "
            f"was in progress since {other.t:.1f}, group {group}",
        )
