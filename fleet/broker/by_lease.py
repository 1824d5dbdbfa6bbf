"""Work that one process does for all, by a lease: each second a part, and each minute the rest."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

from fleet.clock import SystemClock
from fleet.errors import FleetError
from fleet.lease import Lease
from fleet.state.connect import Client
from fleet.waiting import end

EACH_SECOND_S, EACH_MINUTE_S = 1.0, 60.0
TTL_MS = 15_000
_ASK_EVERY_S = 5.0
Job = Callable[[], Awaitable[object]]


class ByLease:
    def __init__(
        self,
        client: Client,
        key: str,
        *,
        each_second: Job,
        each_minute: Job | None = None,
        log: logging.Logger,
        what: str,
    ) -> None:
        owner = f"{what}@{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._lease = Lease(client=client, key=key, owner=owner, ttl_ms=TTL_MS, clock=SystemClock())
        self._each_second = each_second
        self._each_minute = each_minute
        self._log = log
        self._what = what

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.get_running_loop().create_task(self.run())
        try:
            yield
        finally:
            await end([task])
            await self.release()

    async def release(self) -> None:
        """The end: another may do it at once."""
        with contextlib.suppress(FleetError):
            await self._lease.release()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        minute_s = loop.time()
        said = ""
        pause_s = EACH_SECOND_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                if await self._is_ours():
                    await self._each_second()
                    if self._each_minute is not None and loop.time() - minute_s >= EACH_MINUTE_S:
                        minute_s = loop.time()
                        await self._each_minute()
                said = ""
            except FleetError as error:
                if str(error) != said:
                    self._log.warning("the upkeep of the %s waits: %s", self._what, error)
                said = str(error)
            except Exception:
                # A fault of ours, once a second in the log until it is mended: if this task ended, the next holder of
                # the lease would meet the same, and nothing would be kept up by anybody.
                self._log.exception("the upkeep of the %s failed", self._what)
            pause_s = EACH_SECOND_S if self._lease.held else _ASK_EVERY_S

    async def _is_ours(self) -> bool:
        if not self._lease.held:
            return await self._lease.acquire()
        return not self._lease.ageing or await self._lease.renew()
