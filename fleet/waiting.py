"""Waiting: for an event up to a limit, longer after each error, and for background tasks until they have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

_AGAIN_S = 0.1


async def happens(event: asyncio.Event, *, within_s: float | None) -> bool:
    """Whether it is set by then; None waits for as long as it takes."""
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


class Backoff:
    """The pause after each error in a row: twice as long each time, up to `most_s`."""

    def __init__(self, from_s: float = 0.05, most_s: float = 1.0) -> None:
        self._from_s = from_s
        self._most_s = most_s
        self.next_s = from_s

    @property
    def is_new(self) -> bool:
        """Whether nothing failed so far: only the first error in a row is worth a log line."""
        return self.next_s == self._from_s

    def spend(self) -> float:
        """The next pause. The one after it is longer."""
        pause_s, self.next_s = self.next_s, min(self.next_s * 2, self._most_s)
        return pause_s

    async def pause(self) -> None:
        await asyncio.sleep(self.spend())

    def renew(self) -> None:
        self.next_s = self._from_s


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel each, again and again, until it has ended, however it ends.

    Python 3.11's wait_for, which redis-py sends through, may swallow a cancellation that comes as it ends.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_AGAIN_S)


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel them, and look at their errors: asyncio prints one that nobody has looked at."""
    tasks = list(tasks)
    await cancel(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()
