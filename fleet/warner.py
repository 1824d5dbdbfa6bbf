"""What a process warns about while it works: said without waiting, stored once a second, the same once with a count."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from fleet.errors import StateError
from fleet.state.warnings import Severity, Warnings

log = logging.getLogger("fleet")

EVERY_S = 1.0
_KINDS_KEPT = 1000
_FLUSH_WITHIN_S = 2.0


class Warner:
    """`tell` may be called from any callback of the event loop, thousands of times a second."""

    def __init__(self, *, warnings: Warnings, source: str, every_s: float = EVERY_S) -> None:
        self._warnings = warnings
        self._source = source
        self._every_s = every_s
        self._untold: Counter[tuple[str, Severity, str]] = Counter()
        self._some = asyncio.Event()

    def tell(self, category: str, severity: Severity, message: str) -> None:
        kind = (category, severity, message)
        # While Redis is away they pile up here, and that has to end somewhere.
        if kind in self._untold or len(self._untold) < _KINDS_KEPT:
            self._untold[kind] += 1
            self._some.set()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            await self._store()
            await asyncio.sleep(self._every_s)

    async def flush(self) -> None:
        """At the end of a process: what is not stored by now was in the log."""
        try:
            async with asyncio.timeout(_FLUSH_WITHIN_S):
                await self._store()
        except TimeoutError:
            log.debug("%d kinds of warnings not stored", len(self._untold))

    async def _store(self) -> None:
        self._some.clear()
        for kind, times in list(self._untold.items()):
            category, severity, message = kind
            try:
                await self._warnings.add(category, severity, message, self._source, times=times)
            except StateError as error:
                log.debug("warnings wait: %s", error)
                self._some.set()
                return
            self._untold[kind] -= times
            if not self._untold[kind]:
                del self._untold[kind]
