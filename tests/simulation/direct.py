"""A client of the simulation's Redis with nothing in between, by the real clock.

For the tests of the scripts (tests/state), which check that this Redis behaves like the real one.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.simulation.commands import Commands, Pipeline, Reader
from tests.simulation.server import Server


class DirectClient(Commands):
    def __init__(self, server: Server | None = None) -> None:
        self._server = server or Server()
        self._heard: list[_Heard] = []

    async def _do(self, reader: Reader, *command: Any) -> Any:
        return reader(self._now(command))

    def _now(self, command: tuple[Any, ...]) -> Any:
        self._server.store.set_time_us(time.time_ns() // 1000)
        try:
            return self._server.do(command)
        finally:
            for channel, message in self._server.store.take_published():
                for one in self._heard:
                    if channel in one.channels:
                        one.came.put_nowait({"type": "message", "channel": channel, "data": message})

    def pipeline(self, transaction: bool = False) -> Pipeline:
        return Pipeline(self._send_many)

    async def _send_many(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        return [self._now(command) for command in commands]

    def pubsub(self) -> _Heard:
        heard = _Heard()
        self._heard.append(heard)
        return heard


class _Heard:
    def __init__(self) -> None:
        self.channels: tuple[str, ...] = ()
        self.came: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def subscribe(self, *channels: str) -> None:
        self.channels = (*self.channels, *channels)
        for channel in channels:
            self.came.put_nowait({"type": "subscribe", "channel": channel, "data": 1})

    async def get_message(self, timeout: float | None = None) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(timeout):
                return await self.came.get()
        except TimeoutError:
            return None

    async def aclose(self) -> None:
        self.channels = ()
