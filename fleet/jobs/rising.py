"""Times of creation that order what was added: ids that people choose do not rise by themselves."""

from __future__ import annotations

import threading

_MOST = 10_000
LONGEST_EVENT_ID = 100
"""The longest event id that the ids of its jobs begin with: a job's id is also its message's id, which has at most 128
characters."""


def begins_its_jobs(event_id: str) -> str | None:
    """What the ids of an event's jobs begin with, and are ordered by. None: they are in no order."""
    return f"{event_id}." if len(event_id) <= LONGEST_EVENT_ID else None


class Rising:
    """For one process. The order of a group is (created, id), and job-10 must not overtake job-9 because both came
    within a millisecond: the second is given the next millisecond. Each group has a clock of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, tuple[int, str | None]] = {}

    def at(self, group: str | None, id_: str | None, now_ms: int) -> int:
        """`id_`: what decides the order where the times are equal. None: it decides nothing."""
        # Jobs without a group have no order, but people read a list of them as one.
        lane = group or ""
        with self._lock:
            last_ms, last_id = self._last.get(lane, (0, ""))
            created_ms = max(now_ms, last_ms)
            if created_ms == last_ms and not _rises(last_id, id_):
                created_ms += 1
            if len(self._last) >= _MOST:
                self._last = {name: last for name, last in self._last.items() if last[0] >= now_ms}
            self._last[lane] = created_ms, id_
            return created_ms


def _rises(last: str | None, id_: str | None) -> bool:
    """Whatever follows either. Between jobs of `order-17.` and `order-17.paid.`, a hash decides which comes first."""
    return last is not None and id_ is not None and last < id_ and not id_.startswith(last)
