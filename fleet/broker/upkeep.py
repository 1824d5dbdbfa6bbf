"""What one process does for all, by a lease: what others left undone is finished, and what grows old is dropped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator

from fleet.broker.core import Broker
from fleet.broker.sweep import CARRY_EVERY_S, EVERY_S
from fleet.clock import Clock, SystemClock
from fleet.errors import FleetError
from fleet.lease import Lease
from fleet.state.keys import BrokerKeys
from fleet.waiting import end

log = logging.getLogger("fleet.broker")

_TTL_MS = 15_000
_ASK_EVERY_S = 5.0


class Upkeep:
    def __init__(self, broker: Broker, clock: Clock | None = None) -> None:
        self._broker = broker
        owner = f"broker@{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._lease = Lease(
            client=broker.client, key=BrokerKeys.sweeper, owner=owner, ttl_ms=_TTL_MS, clock=clock or SystemClock()
        )

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
        swept_s = loop.time()
        said = ""
        while True:
            await asyncio.sleep(CARRY_EVERY_S if self._lease.held else _ASK_EVERY_S)
            try:
                if not await self._is_ours():
                    continue
                await self._broker.sweeper.carry()
                if loop.time() - swept_s >= EVERY_S:
                    swept_s = loop.time()
                    await self._broker.sweeper.sweep()
                said = ""
            except FleetError as error:
                if str(error) != said:
                    log.warning("the broker's upkeep waits: %s", error)
                said = str(error)

    async def _is_ours(self) -> bool:
        if not self._lease.held:
            return await self._lease.acquire()
        return not self._lease.ageing or await self._lease.renew()
