"""When something falls due in a pool: this worker looks then, unless the time was moved by a call before that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class DueTimer:
    """The timer of one pool. What a call answers may be older than what we were told while it was under way."""

    def __init__(self, look: Callable[[], None], is_stopping: Callable[[], bool]) -> None:
        self._look = look
        self._is_stopping = is_stopping
        self._timer: asyncio.TimerHandle | None = None
        self._told_s: float | None = None
        """When something falls due, as we were told since our last call went out."""

    def told(self, due_ms: int | None) -> None:
        """Another worker's call left something that falls due after `due_ms`. None: to look is no longer our job."""
        now_s = asyncio.get_running_loop().time()
        self._told_s = None if due_ms is None else now_s + due_ms / 1000
        if due_ms is not None and self._timer is not None and (self._timer.when() - now_s) * 1000 <= due_ms:
            return
        self._set(due_ms)

    def asked(self) -> None:
        """Our call goes out: its answer knows all that we were told so far."""
        self._told_s = None

    def answered(self, due_ms: int | None) -> None:
        if self._told_s is not None:
            told_ms = max(1, round((self._told_s - asyncio.get_running_loop().time()) * 1000))
            due_ms = told_ms if due_ms is None else min(told_ms, due_ms)
        self._set(due_ms)

    def end(self) -> None:
        self._set(None)

    def _set(self, due_ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ms is not None and not self._is_stopping():
            self._timer = asyncio.get_running_loop().call_later(due_ms / 1000, self._look)
