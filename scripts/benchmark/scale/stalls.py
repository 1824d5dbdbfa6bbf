"""For how long an event loop is kept busy in one go: CPU time of its thread, so other programs do not count."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Stalls:
    longest_ms: float = 0.0
    cpu_ms: float = 0.0
    """Of all that happened meanwhile on the loop's thread, the looking itself not counted."""
    wall_ms: float = 0.0


@asynccontextmanager
async def stalls() -> AsyncIterator[Stalls]:
    """Looks at each turn of the loop."""
    found, loop = Stalls(), asyncio.get_running_loop()
    over = False
    last_ns = time.thread_time_ns()

    def look() -> None:
        nonlocal last_ns
        now_ns = time.thread_time_ns()
        gone_ms = (now_ns - last_ns) / 1e6
        found.longest_ms = max(found.longest_ms, gone_ms)
        found.cpu_ms += gone_ms if gone_ms > _LOOKING_MS else 0.0
        last_ns = now_ns
        if not over:
            loop.call_soon(look)

    began = time.perf_counter()
    await asyncio.sleep(0)
    last_ns = time.thread_time_ns()
    loop.call_soon(look)
    try:
        yield found
    finally:
        over = True
        await asyncio.sleep(0)
        found.wall_ms = (time.perf_counter() - began) * 1000


_LOOKING_MS = 0.02
"""A turn of the loop in which nothing but a look happened takes less."""
