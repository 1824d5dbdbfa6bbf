"""Counts, durations and moments of time, as people write them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def number(count: int, one: str, many: str = "") -> str:
    """`1 message`, `2,000 messages`; `many` is for what is not `one` with an s, as a noun with its verb."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def unnamed(queue: str, why: str) -> str:
    """What is wrong with a queue, for a line that names it already: adapters begin with its name or its URI."""
    for name in (f"queue {queue}: ", f"{queue}: "):
        if why.startswith(name):
            return why.removeprefix(name)
    return why


def span(seconds: float) -> str:
    """A duration, in its two largest units."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    whole = int(seconds)
    for unit, size, next_unit, next_size in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // next_size
            return f"{whole // size} {unit} {rest} {next_unit}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def utc(ms: float | None = None) -> str:
    """A moment, by default now, as programs read it: `2026-01-31T12:00:00.123Z`."""
    moment = datetime.fromtimestamp(time.time() if ms is None else ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(ms: int) -> str:
    """A moment as people read it: `2026-01-31 12:00:00 UTC`."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def at(ms: int) -> str:
    return f"at {moment(ms)}"


def read_moment(text: str) -> int:
    """Milliseconds, of an ISO 8601 time or date; UTC where it names no zone. Raises ValueError."""
    read = datetime.fromisoformat(text)
    return ((read if read.tzinfo else read.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
