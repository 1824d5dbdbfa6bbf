"""The whole fleet at one moment, read once for everybody who looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec

from fleet.clock import Clock
from fleet.errors import StateError
from fleet.operate import views
from fleet.operate.status import Status, status
from fleet.server.aside import Looks
from fleet.server.breakers import BreakerBoard
from fleet.server.depths import Depths
from fleet.server.health import STATE_AWAY, Health, judge
from fleet.state.connect import Client
from fleet.state.warnings import Warnings, WarningView
from fleet.words import utc

EVERY_S = 1.0
_POOLS_SHOWN = 200
_WARNINGS_SHOWN = 20
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Snapshot:
    taken_ms: float
    status: Status
    warnings: list[WarningView]
    """Those that nobody has acknowledged, the newest first."""
    breakers: list[dict[str, Any]]

    @property
    def health(self) -> Health:
        return judge(self.status, self.warnings, len(self.breakers))

    def to_json(self) -> dict[str, Any]:
        now = self.status
        busiest = sorted(now.pools, key=lambda pool: pool.messages, reverse=True)[:_POOLS_SHOWN]
        return {
            "time": utc(),
            "health": self.health.to_json(),
            "problems": now.problems,
            "leader": now.leader.owner or None,
            "configRevision": now.config.revision if now.config else None,
            "processes": dict(now.roles),
            "messages": {
                "waiting": now.waiting,
                "invisible": now.invisible,
                "tracked": now.tracked,
                "delivering": now.delivering,
                "oldestSeconds": round(now.oldest_s, 1),
            },
            "pools": {pool.code: {**views.pool_json(pool), "state": pool.state} for pool in busiest},
            "poolCount": len(now.pools),
            "queues": {queue.view.name: views.queue_json(queue) for queue in now.queues},
            "workers": views.workers_json(now.records),
            "circuitBreakers": self.breakers,
            "warnings": [warning.to_json() for warning in self.warnings[:_WARNINGS_SHOWN]],
            "warningCount": len(self.warnings),
        }


class Snapshots:
    """One reader of Redis, whatever the number of listeners; none while nobody listens."""

    def __init__(
        self, *, looks: Looks, clock: Clock, depths: Depths, breakers: BreakerBoard, every_s: float = EVERY_S
    ) -> None:
        self._looks = looks
        self._clock = clock
        self._depths = depths
        self._breakers = breakers
        self._every_s = every_s
        self._latest: Snapshot | None = None
        self._reading = asyncio.Lock()
        self._news = asyncio.Condition()
        self._frame = b""
        self._number = 0
        self._listeners = 0
        self._reader: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def listeners(self) -> int:
        return self._listeners

    async def latest(self) -> Snapshot:
        """No older than a second."""
        async with self._reading:
            now_ms = self._clock.boot_ms()
            if self._latest is None or now_ms - self._latest.taken_ms >= self._every_s * 1000:
                self._latest = Snapshot(now_ms, *await self._looks.ask(self._look))
            return self._latest

    async def _look(self, client: Client) -> tuple[Status, list[WarningView], list[dict[str, Any]]]:
        return (
            await status(client, depths=self._looks.at_home(self._depths), look_behind=False),
            await Warnings(client).list(unacknowledged=True),
            await self._looks.at_home(self._breakers.list)(),
        )

    async def health(self) -> Health:
        try:
            return (await self.latest()).health
        except StateError:
            return STATE_AWAY

    # Server-sent events ----------------------------------------------------------------------------

    async def events(self) -> AsyncIterator[bytes]:
        """A frame for each snapshot. A slow listener misses some, and holds up nobody."""
        self._listeners += 1
        seen = self._number
        if self._reader is None:
            self._reader = asyncio.get_running_loop().create_task(self._read())
        else:
            seen -= bool(self._frame)
        try:
            while await self._newer_than(seen):
                seen = self._number
                yield self._frame
        finally:
            self._listeners -= 1

    async def _newer_than(self, seen: int) -> bool:
        """Wait for one; False if none will come any more."""
        async with self._news:
            await self._news.wait_for(lambda: self._closed or self._number > seen)
        return not self._closed

    async def close(self) -> None:
        """End every stream: a server that stops would wait for them."""
        self._closed = True
        async with self._news:
            self._news.notify_all()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])

    async def _read(self) -> None:
        try:
            while self._listeners and not self._closed:
                frame = await self._next_frame()
                async with self._news:
                    self._frame, self._number = frame, self._number + 1
                    self._news.notify_all()
                await asyncio.sleep(self._every_s)
        finally:
            self._reader, self._frame = None, b""

    async def _next_frame(self) -> bytes:
        try:
            return b"event: snapshot\ndata: " + _encode((await self.latest()).to_json()) + b"\n\n"
        except StateError as error:
            return b"event: away\ndata: " + _encode({"error": str(error)}) + b"\n\n"
