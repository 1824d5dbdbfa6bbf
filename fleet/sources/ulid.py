"""ULIDs: 48 bits of milliseconds and 80 random bits, as 26 characters that sort as they were made."""

from __future__ import annotations

import os
import threading

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [left + right for left in _ALPHABET for right in _ALPHABET]


class UlidMaker:
    """Makes ids that rise within this maker, even when the clock stands still or steps back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last_ms = -1
        self._tail = 0

    def forget(self) -> None:
        """Start anew: a forked child that counted on from its parent's tail would make the parent's ids."""
        self._lock = threading.Lock()
        self._last_ms = -1

    def take(self, count: int, now_ms: int) -> list[str]:
        with self._lock:
            if now_ms > self._last_ms:
                self._last_ms = now_ms
                # One bit is left out, so that counting up from here never carries into the time.
                self._tail = int.from_bytes(os.urandom(10), "big") >> 1
            first = (self._last_ms << 80) + self._tail
            self._tail += count
        ids: list[str] = []
        head, head_of = "", -1
        for value in range(first, first + count):
            high = value >> 20
            if high != head_of:  # the last four characters are all that changes from one id to the next
                head, head_of = _encode(high), high
            ids.append(head + _PAIRS[(value >> 10) & 1023] + _PAIRS[value & 1023])
        return ids


def _encode(high: int) -> str:
    return "".join(_PAIRS[(high >> shift) & 1023] for shift in range(100, -1, -10))


_maker = UlidMaker()
os.register_at_fork(after_in_child=_maker.forget)


def take(count: int, now_ms: int) -> list[str]:
    """`count` new ids, higher than any this process took before."""
    return _maker.take(count, now_ms)
