"""Numbers of things, as people write them."""

from __future__ import annotations


def number(count: int, one: str, many: str = "") -> str:
    """`1 message`, `2,000 messages`; `many` where it is not `one` with an s, as of a noun with its verb."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
