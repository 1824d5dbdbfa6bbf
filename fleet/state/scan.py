"""A large hash, set or sorted set, a page a call: no call holds Redis up, and nobody holds all of it at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from fleet.state.connect import translated

T = TypeVar("T")


async def pages(scan: Callable[..., Awaitable[tuple[int, T]]], key: str, *, count: int) -> AsyncIterator[T]:
    """`scan`: `hscan`, `sscan` or `zscan` of a client. What changes meanwhile may come twice, or not at all."""
    cursor = 0
    while True:
        with translated():
            cursor, page = await scan(key, cursor, count=count)
        yield page
        if not cursor:
            return
