"""What one process counts: of what kind, whose, and which. Its totals leave it in parts (`fleet/state/totals.py`)."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Mapping

from fleet.metrics.exposition import BOUNDS_S, PLACES, SUM_US

Key = tuple[str, str]
"""Of what kind, and whose: ("pool", "POOL-HIGH")."""
Counts = dict[str, int]
"""Which → how many: {"SUCCESS": 7}. For a histogram: its `PLACES` → how many, and the sum in us."""
Counted = dict[Key, Counts]

_AT_ONCE = 200


class Counters:
    """Counts only go up. What changed since the last `take` is kept apart, so that taking costs only what changed."""

    def __init__(self) -> None:
        self._fresh: Counted = {}
        self._taken: Counted = {}
        self._again: Counted = {}
        """What was taken once and is to be taken again. `_taken` begins anew with it."""

    def add(self, kind: str, of: str, which: str, more: int = 1) -> None:
        counts = self._fresh.get((kind, of))
        if counts is None:
            counts = self._fresh[kind, of] = {}
        counts[which] = counts.get(which, 0) + more

    def observe(self, kind: str, of: str, seconds: float) -> None:
        """Count a time in a histogram."""
        counts = self._fresh.get((kind, of))
        if counts is None:
            counts = self._fresh[kind, of] = {}
        place = PLACES[bisect_left(BOUNDS_S, seconds)]
        counts[place] = counts.get(place, 0) + 1
        counts[SUM_US] = counts.get(SUM_US, 0) + round(seconds * 1e6)

    def put(self, kind: str, of: str, counts: Mapping[str, int]) -> None:
        """All that another counter holds since we began: what is new in it is added."""
        known = self.of((kind, of))
        for which, value in counts.items():
            more = value - known.get(which, 0)
            if more > 0:
                self.add(kind, of, which, more)

    def put_all(self, other: Counters) -> None:
        for key in other.known():
            self.put(*key, other.of(key))

    def of(self, key: Key) -> Counts:
        found: Counts = {}
        for part in (self._taken, self._again, self._fresh):
            if key in part:
                _merge(found, part[key])
        return found

    def known(self) -> list[Key]:
        return list({**self._taken, **self._again, **self._fresh})

    async def all(self) -> Counted:
        """A copy, made in pieces: there may be tens of thousands, and an event loop has other things to do."""
        found: Counted = {}
        for number, key in enumerate(self.known(), start=1):
            found[key] = self.of(key)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return found

    # Taking -----------------------------------------------------------------------------------------

    def take(self, most: int) -> list[tuple[Key, Counts]]:
        """Take what was counted since the last time, of up to `most` keys; what changed first comes first."""
        found: list[tuple[Key, Counts]] = []
        for source in (self._fresh, self._again):
            while source and len(found) < most:
                key = next(iter(source))
                counts = source.pop(key)
                if source is self._fresh and key in self._again:
                    _merge(counts, self._again.pop(key))
                _merge(self._taken.setdefault(key, {}), counts)
                found.append((key, counts))
        return found

    def take_again(self) -> None:
        """All of it is to be taken again: it was lost after it was taken."""
        if not self._again:
            self._again, self._taken = self._taken, {}
            return
        for key, counts in self._taken.items():
            _merge(self._again.setdefault(key, {}), counts)
        self._taken = {}

    @property
    def pending(self) -> int:
        """How many keys have something to take, at most."""
        return len(self._fresh) + len(self._again)


def _merge(into: Counts, more: Mapping[str, int]) -> None:
    for which, value in more.items():
        into[which] = into.get(which, 0) + value
