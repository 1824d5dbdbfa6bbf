"""What went back to its source and is waited for, in plain Python: its order, and how long anybody waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fleet.state.entry import Entry

GRACE_MS = 60_000


@dataclass
class Expected:
    """Of one lane and tier: these come first, in this order."""

    keys: list[str]
    by_ms: int
    second_since_ms: int | None = None
    """Since when they are given a second time to come: the clock may have stepped."""
    came: set[str] = field(default_factory=set)
    """Those that did meanwhile, before their turn."""


def tier_and_lane(entry: Entry) -> str:
    return ("h" if entry.high_priority else "r") + entry.lane


def keeps_order(entry: Entry, on_failure: str) -> bool:
    """Whether newer messages of its group wait for it: it is promised, and its source does not see to it."""
    is_source_s = entry.source_holds_groups or not entry.source_has_order
    return not is_source_s and (entry.policy or on_failure) in ("hold", "park")


@dataclass
class ModelAway:
    lanes: dict[str, Expected] = field(default_factory=dict)

    def step_back(self, ms: int) -> None:
        for expected in self.lanes.values():
            expected.by_ms -= ms
            if expected.second_since_ms is not None:
                expected.second_since_ms -= ms

    def stood_before(self, name: str, keys: Sequence[str], by_ms: int) -> None:
        """What went back is older than all of its lane that was away already."""
        if keys:
            expected = self.lanes.setdefault(name, Expected([], by_ms))
            expected.keys[:0] = keys
            expected.by_ms = max(expected.by_ms, by_ms)


class AwayOfCall:
    """One submit's view: a lane that is late is judged once, when the call first speaks of it."""

    def __init__(self, away: ModelAway, now_ms: int, coming: Iterable[str]) -> None:
        self._away = away
        self._coming = set(coming)
        self._now_ms = now_ms
        self._asked: set[str] = set()
        self._late: set[str] = set()
        self._first_late: set[str] = set()
        self._changed: set[str] = set()

    def _look(self, name: str) -> Expected | None:
        expected = self._away.lanes.get(name)
        if name not in self._asked:
            self._asked.add(name)
            if expected is not None and self._now_ms > expected.by_ms + GRACE_MS:
                since_ms = expected.second_since_ms
                self._late.add(name)
                if since_ms is None or since_ms <= expected.by_ms + GRACE_MS:
                    self._first_late.add(name)
                    expected.came.clear()
                elif self._now_ms > since_ms + GRACE_MS:
                    kept = [key for key in expected.keys if key in expected.came | self._coming]
                    expected = self._away.lanes[name] = Expected(kept, self._now_ms)
                    self._late.discard(name)
        return expected

    def before(self, name: str) -> list[str]:
        expected = self._look(name)
        return [] if expected is None else list(expected.keys)

    def wait_ms(self, name: str) -> int:
        expected = self._look(name)
        return 0 if expected is None else expected.by_ms - self._now_ms

    def came(self, name: str, keys: Iterable[str]) -> None:
        """Whoever comes shows that the others do too: they are expected from now on."""
        expected = self._look(name)
        gone = set(keys)
        if expected is None or not gone & set(expected.keys):
            return
        self._changed.add(name)
        expected.keys = [key for key in expected.keys if key not in gone]
        expected.by_ms = max(expected.by_ms, self._now_ms)
        expected.second_since_ms = None
        expected.came.clear()
        self._late.discard(name)
        self._first_late.discard(name)

    def turned_away(self, name: str, key: str, by_ms: int) -> None:
        expected = self._look(name)
        if expected is None:
            expected = self._away.lanes[name] = Expected([], self._now_ms)
        if key not in expected.keys or by_ms > expected.by_ms:
            self._changed.add(name)
        if key not in expected.keys:
            expected.keys.append(key)
        if name in self._late:
            expected.came.add(key)
        expected.by_ms = max(expected.by_ms, by_ms)

    def end(self) -> bool:
        """What is empty by now is over: until here what is turned away is expected when the others were. Returns
        whether anything was noted."""
        for name in [name for name, expected in self._away.lanes.items() if not expected.keys]:
            del self._away.lanes[name]
        for name in self._first_late:
            self._away.lanes[name].second_since_ms = self._now_ms
        return bool(self._changed & self._away.lanes.keys() or self._first_late)
