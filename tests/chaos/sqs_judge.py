"""What became of the messages of a storm, by what its clients saw: nothing that a door or Redis says of itself."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


class Letter(NamedTuple):
    """`body` is its group, a slash, and its place among what was sent to that group."""

    id: str
    body: str

    @property
    def group(self) -> str:
        return self.body.partition("/")[0]

    @property
    def place(self) -> int:
        return int(self.body.partition("/")[2])


class Shown(NamedTuple):
    """One answer of a receive, and between when and when it was decided."""

    queue: str
    began_s: float
    ended_s: float
    letters: tuple[Letter, ...]


class Deleted(NamedTuple):
    """A deletion that was acknowledged. `began_s`: when it was first asked for."""

    queue: str
    began_s: float
    ended_s: float
    letter: Letter
    until_s: float = math.inf
    """By when the showing that it is of was over for certain."""
    held_s: float = math.inf
    """Until when it held for certain."""


@dataclass
class Journal:
    accepted: dict[str, str] = field(default_factory=dict)
    """By body, the queue that said yes."""
    shown: list[Shown] = field(default_factory=list)
    deleted: list[Deleted] = field(default_factory=list)

    def missing(self) -> set[str]:
        return self.accepted.keys() - {one.letter.body for one in self.deleted}


@dataclass(frozen=True, slots=True)
class Verdict:
    lost: list[str]
    inversions: list[str]
    after_deletion: list[str]
    accepted_twice: list[str]
    too_late: list[str]

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.inversions or self.after_deletion or self.accepted_twice or self.too_late)

    def __str__(self) -> str:
        return "; ".join(
            f"{len(found)} {what}{': ' if found else ''}{', '.join(found[:5])}"
            for what, found in (
                ("lost", sorted(self.lost)),
                ("inverted", self.inversions),
                ("shown after they were deleted", self.after_deletion),
                ("accepted twice", self.accepted_twice),
                ("deleted too late", self.too_late),
            )
        )


def judge(journal: Journal) -> Verdict:
    return Verdict(
        lost=list(journal.missing()),
        inversions=[*_shown_too_early(journal.shown), *_deleted_too_early(journal)],
        after_deletion=list(_shown_after_deletion(journal)),
        accepted_twice=list(_accepted_twice(journal.shown)),
        too_late=list(_too_late(journal)),
    )


def is_fifo(queue: str) -> bool:
    return queue.endswith(".fifo")


def _shown_too_early(shown: Iterable[Shown]) -> Iterator[str]:
    """Where a message was shown without an earlier one of its group, which was shown there later: it was not gone."""
    by_group: dict[tuple[str, str], list[tuple[float, float, list[int]]]] = defaultdict(list)
    for answer in shown:
        if not is_fifo(answer.queue):
            continue
        parts: dict[str, list[int]] = defaultdict(list)
        for letter in answer.letters:
            parts[letter.group].append(letter.place)
        for group, places in parts.items():
            if places != sorted(set(places)):
                yield f"{answer.queue} {group}: {places} in one answer"
            by_group[answer.queue, group].append((answer.began_s, answer.ended_s, places))
    for (queue, group), answers in by_group.items():
        last_s: dict[int, float] = {}
        for began_s, _, places in answers:
            for place in places:
                last_s[place] = max(last_s.get(place, 0.0), began_s)
        for _, ended_s, places in answers:
            beyond = [i for i in last_s if i < places[-1] and last_s[i] > ended_s and i not in places]
            for i in beyond:
                yield f"{queue} {group}: {i} was shown after {places[-1]}"


def _deleted_too_early(journal: Journal) -> Iterator[str]:
    by_group: dict[tuple[str, str], dict[int, tuple[float, float]]] = defaultdict(dict)
    dead = _dead(journal)
    for one in journal.deleted:
        has_moved = one.letter.body in dead and one.queue == journal.accepted[one.letter.body]
        if is_fifo(one.queue) and not has_moved:
            found = by_group[one.queue, one.letter.group]
            # What is gone may be deleted again, as often as somebody likes: the first time counts.
            began_s, ended_s = found.get(one.letter.place, (one.began_s, one.ended_s))
            found[one.letter.place] = min(began_s, one.began_s), min(ended_s, one.ended_s)
    for (queue, group), found in by_group.items():
        in_order = sorted(found.items())
        for i, (place, (began_s, _)) in enumerate(in_order):
            # Answers come in any order: only what had ended before the other began is out of order.
            early = next((other for other, (_, ended_s) in in_order[i + 1 :] if ended_s < began_s), None)
            if early is not None:
                yield f"{queue} {group}: {place} was deleted after {early}"


def _too_late(journal: Journal) -> Iterator[str]:
    """Deleted by one whose time was over, and by nobody else: in an ordered queue it may be another's by then."""
    dead = _dead(journal)
    by_body: dict[str, list[Deleted]] = defaultdict(list)
    for one in journal.deleted:
        by_body[one.letter.body].append(one)
    for body, found in by_body.items():
        if len(found) == 1 and is_fifo(found[0].queue) and body not in dead and found[0].began_s > found[0].until_s:
            yield f"{found[0].queue} {body}: {found[0].began_s - found[0].until_s:.3f} s"


def _dead(journal: Journal) -> set[str]:
    """What was shown where it was not sent to."""
    return {
        letter.body
        for answer in journal.shown
        for letter in answer.letters
        if answer.queue != journal.accepted.get(letter.body, answer.queue)
    }


def _shown_after_deletion(journal: Journal) -> Iterator[str]:
    """In an ordered queue a message is what it says; in a standard one a send that is repeated makes another."""
    gone_s: dict[str, float] = {}
    dead = _dead(journal)
    for one in journal.deleted:
        has_moved = one.letter.body in dead and one.queue == journal.accepted[one.letter.body]
        if has_moved and one.ended_s > one.held_s:
            continue  # of what has moved on, an old handle is told that it is gone
        for name in _names_of(one.queue, one.letter):
            gone_s[name] = min(gone_s.get(name, one.ended_s), one.ended_s)
    for answer in journal.shown:
        for letter in answer.letters:
            for name in _names_of(answer.queue, letter):
                if gone_s.get(name, answer.began_s) < answer.began_s:
                    yield f"{answer.queue} {letter.body} ({letter.id})"
                    break


def _names_of(queue: str, letter: Letter) -> tuple[str, ...]:
    return (letter.id, letter.body) if is_fifo(queue) else (letter.id,)


def _accepted_twice(shown: Iterable[Shown]) -> Iterator[str]:
    ids: dict[str, set[str]] = defaultdict(set)
    for answer in shown:
        if is_fifo(answer.queue):
            for letter in answer.letters:
                ids[letter.body].add(letter.id)
    for body, found in ids.items():
        if len(found) > 1:
            yield f"{body} as {', '.join(sorted(found))}"
