"""Ending background tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

_AGAIN_S = 0.1


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Until each has ended, however it ends.

    Python 3.11's wait_for, which redis-py sends through, may swallow a cancellation that meets its end.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_AGAIN_S)
