"""Which workers hear of which pool: a hundred of them and ten thousand pools must not all speak to each other.

The workers stand on a ring, and a pool's order of them begins at its own place there. The first two are its *homes*:
they hear when it has work, and the first looks when something falls due in it, and now and then anyway. Each worker
works this out alone, from who lives. For a moment after one came or went two may disagree: then a pool has three
homes, or one, and a worker that becomes one asks for work.
"""

from __future__ import annotations

import fnmatch
import re
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from zlib import crc32

HOMES = 2
_PLACES_EACH = 64
"""On the ring, for a fair share: with one place each, a worker may get three times the pools of another."""

Globs = tuple[str, ...]


class Homes:
    def __init__(self, name: str, globs: Sequence[str]) -> None:
        self._name = name
        self._peers: dict[str, Globs] = {}
        self._matchers: dict[Globs, Callable[[str], object]] = {}
        self._points: list[int] = []
        self._names: list[str] = []
        self._all = True
        """Whether every worker serves every pool, as is usual."""
        self._mine: Globs = tuple(globs)
        self.follow({})

    def follow(self, peers: Mapping[str, Globs]) -> bool:
        """Take these workers, and ourselves, for the living. Returns whether that changed anything."""
        found = {**peers, self._name: self._mine}
        if found == self._peers:
            return False
        self._peers = found
        ring = sorted((crc32(f"{name}#{i}".encode()), name) for name in found for i in range(_PLACES_EACH))
        self._points = [point for point, _ in ring]
        self._names = [name for _, name in ring]
        self._all = all(globs == ("*",) for globs in found.values())
        self._matchers = {
            globs: re.compile("|".join(map(fnmatch.translate, globs))).match for globs in set(found.values())
        }
        return True

    def place(self, code: str, most: int = HOMES) -> int:
        """Our place in the order of this pool, or `most` if it is not among the first `most`."""
        seen: set[str] = set()
        at = bisect(self._points, crc32(code.encode()))
        for i in range(at, at + len(self._names)):
            name = self._names[i % len(self._names)]
            if name in seen or not (self._all or self._matchers[self._peers[name]](code)):
                continue
            if name == self._name:
                return len(seen)
            seen.add(name)
            if len(seen) == most:
                break
        return most
