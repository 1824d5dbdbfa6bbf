"""What time it is in a queue file.

Leases and delays have to outlive their process, so the file holds them as points in time. But the wall clock, the one
that everybody agrees on, may step. A queue that was sent to while it was a day ahead showed nothing until tomorrow;
after a step ahead all that was leased was shown again at once. So a file has a time of its own: the kernel's clock
since boot, and how far the file is ahead of that. The kernel's clock does not step, and all processes of the machine
share it (a queue file needs a local disk). After a boot the file's time goes on by the wall clock, and never back
behind where it was.
"""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path

from fleet.clock import Clock

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NOTED_EVERY_MS = 60_000
"""If the wall clock is behind after a boot, no more than this is waited for twice."""
_A_STEP_MS = 1000
_READS = 20_000
"""Reads of a clock: they take some milliseconds."""
TABLE = """CREATE TABLE IF NOT EXISTS clock (one INTEGER PRIMARY KEY CHECK (one = 1), boot_id TEXT NOT NULL,
                                             ahead_ms REAL NOT NULL, seen_ms INTEGER NOT NULL)"""


class FileClock:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = 0.0
        self._noted_ms = 0

    def now_ms(self) -> int:
        return int(self._clock.boot_ms() + self._ahead_ms)

    def prepare(self, db: sqlite3.Connection) -> None:
        """Within a transaction that is alone: the first process to open the file after a boot says how its time goes
        on."""
        db.execute(TABLE)
        known = _ahead_ms(db)
        if known is None:
            (sent_ms,) = db.execute(
                "SELECT coalesce((SELECT sent_ms FROM bodies ORDER BY seq DESC LIMIT 1), 0)"
            ).fetchone()
            wall_ms, boot_ms = _both(self._clock)
            now_ms = max(wall_ms, sent_ms, _seen_ms(db))
            known = now_ms - boot_ms
            db.execute("INSERT OR REPLACE INTO clock VALUES (1, ?, ?, ?)", (_boot_id(), known, now_ms))
            self._noted_ms = now_ms
        self._ahead_ms = known

    def note(self, db: sqlite3.Connection, now_ms: int) -> None:
        """Within a transaction: write down now and then how far the file's time has come."""
        if now_ms - self._noted_ms > _NOTED_EVERY_MS:
            db.execute("UPDATE clock SET seen_ms = max(seen_ms, ?)", (now_ms,))
            self._noted_ms = now_ms


def ahead_of_wall_ms(db: sqlite3.Connection, clock: Clock) -> int:
    """How far a file's time is ahead of the wall clock, to tell people when something will come.

    0 if the difference is not a step: the two clocks are read one after the other.
    """
    if db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'clock'").fetchone() is None:
        return 0
    known = _ahead_ms(db)
    if known is None:
        return max(0, _seen_ms(db) - clock.wall_ms())
    ahead_ms = int(clock.boot_ms() + known) - clock.wall_ms()
    return ahead_ms if abs(ahead_ms) >= _A_STEP_MS else 0


def _both(clock: Clock) -> tuple[int, float]:
    """The two clocks at one moment. The wall clock counts whole milliseconds: it is read just as it goes on to the
    next."""
    wall_ms = clock.wall_ms()
    for _ in range(_READS):
        if (now_ms := clock.wall_ms()) != wall_ms:
            return now_ms, clock.boot_ms()
    return wall_ms, clock.boot_ms()  # a clock that stands still


def _ahead_ms(db: sqlite3.Connection) -> float | None:
    """None if nobody has opened the file since this machine was booted."""
    found = db.execute("SELECT ahead_ms FROM clock WHERE boot_id = ?", (_boot_id(),)).fetchone()
    return None if found is None else float(found[0])


def _seen_ms(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT coalesce(max(seen_ms), 0) FROM clock").fetchone()[0])


@cache
def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""  # not Linux, or /proc is not there: every boot is taken for the same one
