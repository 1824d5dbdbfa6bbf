"""The pipeline's lag for `/metrics`: asked every few seconds at most, on a thread, and no scrape waits long for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from fleet.alarms import Alarms
from fleet.clock import Clock
from fleet.jobs.due import Due

EVERY_MS = 5000.0
PATIENCE_S = 2.0


class DueNow:
    def __init__(self, *, ask: Callable[[], Due | None], clock: Clock, alarms: Alarms) -> None:
        self._ask = ask
        self._clock = clock
        self._alarms = alarms
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="due")
        self._asking: asyncio.Future[Due | None] | None = None
        self._asked_ms = float("-inf")
        self._known: Due | None = None
        self._failed = False

    async def __call__(self) -> Due | None:
        """None if it is not known: there are no jobs, or the job store is away."""
        now_ms = self._clock.boot_ms()
        if self._asking is None and now_ms - self._asked_ms >= EVERY_MS:
            self._asked_ms = now_ms
            self._asking = asyncio.get_running_loop().run_in_executor(self._thread, self._ask)
            self._asking.add_done_callback(self._answered)
        if self._asking is not None:
            await asyncio.wait([self._asking], timeout=PATIENCE_S)
        return self._known if self._asking is None else None

    def _answered(self, asking: asyncio.Future[Due | None]) -> None:
        self._asking, self._known = None, None
        if asking.cancelled():
            return
        error = asking.exception()
        if error is None:
            self._known, self._failed = asking.result(), False
        elif not self._failed:
            # Said once: a scrape comes every few seconds.
            self._failed = True
            self._alarms.add("JOB_STORE", "WARN", f"the lag of the pipeline cannot be told: {error}")

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
