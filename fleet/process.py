"""What every long-running process does: a name, a heartbeat, a clean end on SIGTERM, an honest one on a crash."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fleet.errors import InvalidConfig, StateError
from fleet.state.registry import Registry
from fleet.state.scripts import call_times
from fleet.state.totals import Counter, Tally, counters_of
from fleet.tasks import cancel

log = logging.getLogger("fleet")

_BEAT_S = 1.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Who we are in the fleet. A name is never used twice: a restarted process is another one."""

    role: str
    name: str
    pid: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)
    started_at: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))

    @staticmethod
    def new(role: str, *, prefix: str = "") -> Identity:
        return Identity(role, f"{prefix}{role}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}")


def tame_collector() -> None:
    """Look for cycles rarely: hardly any are made here, and each look walks through all that is in flight."""
    gc.collect()
    gc.freeze()  # what was imported stays
    gc.set_threshold(50_000, 20, 50)


class Heartbeat:
    """Tells the registry that we live and what we counted, and hears who else does.

    `describe` says what people see of us. Its `totals`, `counts` and `histograms` are counted since our start.
    """

    def __init__(
        self,
        *,
        registry: Registry,
        identity: Identity,
        ttl_ms: int,
        describe: Callable[[], dict[str, Any]],
        on_alive: Callable[[set[str]], None] | None = None,
    ) -> None:
        self._registry = registry
        self._identity = identity
        self._ttl_ms = ttl_ms
        self._describe = describe
        self._on_alive = on_alive
        self._tally = Tally(registry.client, identity.name)

    async def run(self) -> None:
        while True:
            await self.beat()
            # More often than life needs: what people see of us is as old as our last beat.
            await asyncio.sleep(min(self._ttl_ms / 3000, _BEAT_S))

    async def beat(self) -> None:
        me = self._identity
        record = {
            "role": me.role,
            "name": me.name,
            "pid": me.pid,
            "host": me.host,
            "startedAt": me.started_at,
            "queues": [],
            "pools": [],
            "epoch": "",
            **self._describe(),
        }
        try:
            await self._count(record)
            # Long lists that nobody reads one by one: they are in the totals.
            record.pop("histograms", None)
            alive = await self._registry.beat(me.name, record, ttl_ms=self._ttl_ms)
        except StateError as error:
            # Others will think us dead, rightly: without Redis we do nothing.
            log.debug("no heartbeat: %s", error)
            return
        if self._on_alive is not None:
            self._on_alive(alive)

    def counted(self) -> dict[Counter, int]:
        """All that this process counted since it began."""
        return self._counted(self._describe())

    def _counted(self, described: dict[str, Any]) -> dict[Counter, int]:
        record = {"role": self._identity.role, **described}
        record["histograms"] = {**record.get("histograms", {}), **call_times.to_json()}
        return counters_of(record)

    async def _count(self, described: dict[str, Any]) -> None:
        await self._tally.add(self._counted(described), now_ms=time.monotonic() * 1000)

    async def leave(self) -> None:
        try:
            # What was counted since the last beat would go with us.
            await self._count(self._describe())
            await self._registry.leave(self._identity.name)
        except StateError as error:
            log.debug("left without saying so: %s", error)


class Life:
    """Runs background tasks until a signal or a crash ends the process."""

    def __init__(self) -> None:
        self._over = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.crash: BaseException | None = None
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_loop_error)
        # A lost terminal is a reason to end as well, and no reason to end in a crash.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._over.set)

    def spawn(self, task: asyncio.Task[None]) -> None:
        task.add_done_callback(self.check)
        self._tasks.append(task)

    def check(self, task: asyncio.Task[None]) -> None:
        """A task that ended with an exception ends the process: going on half alive would hide it."""
        if not task.cancelled() and (error := task.exception()) is not None:
            # What a user set wrong is said in a line; anything else is ours to find.
            if isinstance(error, InvalidConfig):
                log.error("%s", error)
            else:
                log.error("ends because of an error", exc_info=error)
            self.crash = self.crash or error
            self._over.set()

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback that raised leaves something half done for ever: a lease that is renewed and never delivered."""
        loop.default_exception_handler(context)
        error = context.get("exception")
        if isinstance(error, Exception) and "callback" in str(context.get("message", "")).lower():
            self.crash = self.crash or error
            self._over.set()

    def end(self) -> None:
        self._over.set()

    async def wait(self) -> None:
        await self._over.wait()

    async def cancel(self) -> None:
        await cancel(self._tasks)

    def exit_code(self) -> int:
        return 1 if self.crash is not None else 0
