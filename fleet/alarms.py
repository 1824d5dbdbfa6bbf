"""Warnings from a running process: logged at once, and kept in Redis for people to see. No caller waits for Redis."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from fleet.errors import StateError
from fleet.state.warnings import Severity, Warnings

log = logging.getLogger("fleet.alarms")

_LEVELS: dict[Severity, int] = {
    "CRITICAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
}
_KINDS_WAITING = 1000


class Alarms:
    """The warnings of one process. A repeat of one that is still on its way to Redis is counted."""

    def __init__(self, *, warnings: Warnings, source: str) -> None:
        self._warnings = warnings
        self._source = source
        self._waiting: Counter[tuple[str, Severity, str]] = Counter()
        self._task: asyncio.Task[None] | None = None

    def add(self, category: str, severity: Severity, text: str, *, logged: bool = False) -> None:
        """`logged`: the caller has logged it already, perhaps with more detail."""
        if not logged:
            log.log(_LEVELS[severity], "%s: %s", category, text)
        kind = (category, severity, text)
        if kind in self._waiting or len(self._waiting) < _KINDS_WAITING:
            self._waiting[kind] += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._store())

    async def flush(self) -> None:
        """Wait until what was added is stored, or could not be."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _store(self) -> None:
        try:
            while self._waiting:
                (category, severity, text), times = self._waiting.popitem()
                await self._warnings.add(category, severity, text, self._source, times=times)
        except StateError as error:
            # The reason for a warning is often the reason that it cannot be kept. The log has it.
            log.debug("warnings not kept: %s", error)
            self._waiting.clear()
        finally:
            self._task = None
