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
from fleet.metrics.counters import Counted, Counters
from fleet.state.outages import outages
from fleet.state.registry import Registry
from fleet.state.scripts import call_times
from fleet.state.totals import PIECE, Tally
from fleet.state.writes import refusal
from fleet.waiting import cancel
from fleet.words import utc

log = logging.getLogger("fleet")

MOST_DELIVERIES = 200
"""How many slow deliveries a worker names in its heartbeat, at most: the heartbeat must not grow without end."""
_BEAT_S = 1.0
RECORDS_A_SECOND = 10_000
"""The most counter records that all processes together tell, so that Redis has time for other work: this takes some
4 % of its core. What changed first goes first."""
_SCRIPTS_EVERY = 10
"""One heartbeat in this many tells how long the calls of scripts took."""
_RECORDS_LEAST, _RECORDS_MOST = 50, 2000
"""One process's part of them stays between these: all of them would cost it a tenth of a core, and with too few it
would never be done."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who we are in the fleet. A name is never used twice: a restarted process is a new one."""

    role: str
    name: str
    pid: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)
    started_at: str = field(default_factory=utc)

    @staticmethod
    def new(role: str, *, prefix: str = "") -> Identity:
        return Identity(role, f"{prefix}{role}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}")


def tame_collector() -> None:
    """Look for cycles rarely: hardly any are made here, and each look walks through all that is in flight."""
    gc.collect()
    gc.freeze()  # what was imported stays
    gc.set_threshold(50_000, 20, 50)


class Heartbeat:
    """Tells the registry that we live and what we counted, and hears who else lives.

    `describe` says what people see of us, in a few lines however many pools there are. Its `counts` are counted since
    our start: each is a number, or several numbers under the name of a queue. Longer tables are in `counters`. Both
    are told to the totals, a piece at a time.
    """

    def __init__(
        self,
        *,
        registry: Registry,
        identity: Identity,
        ttl_ms: int,
        describe: Callable[[], dict[str, Any]],
        counters: Counters | None = None,
        on_alive: Callable[[set[str]], None] | None = None,
    ) -> None:
        self._registry = registry
        self._identity = identity
        self._ttl_ms = ttl_ms
        # More often than staying alive needs: what people see of us is as old as our last beat.
        self._beat_s = min(ttl_ms / 3000, _BEAT_S)
        self._describe = describe
        self._on_alive = on_alive
        self._counters = counters if counters is not None else Counters()
        self._tally = Tally(registry.client, identity.name, self._counters)
        self._alive = 1
        self._withdrawn = False
        self._beats = 0
        self._missed = 0
        self._looking: asyncio.Task[None] | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + self._beat_s
            left = await self.beat()
            pause_s = PIECE / self._records_a_second
            while left and loop.time() + pause_s < due_s:
                await asyncio.sleep(pause_s)
                left = await self._tell_more()
            await asyncio.sleep(max(0.0, due_s - loop.time()))

    @property
    def _records_a_second(self) -> float:
        return min(max(RECORDS_A_SECOND / self._alive, _RECORDS_LEAST), _RECORDS_MOST)

    async def beat(self) -> int:
        """Say that we live, and tell some of what we counted. Returns how many keys have more to tell."""
        me, seen = self._identity, outages.seen
        described = self._describe()
        record = {
            "role": me.role,
            "name": me.name,
            "pid": me.pid,
            "host": me.host,
            "startedAt": me.started_at,
            "queues": [],
            "pools": [],
            "epoch": "",
            **described,
        }
        try:
            # Each heartbeat calls a script itself. If that were told each time, even an idle process would always
            # have something to tell.
            self._count(described, scripts=self._beats % _SCRIPTS_EVERY == 0)
            self._beats += 1
            left = await self._tell()
            if self._withdrawn:
                return left
            alive = await self._registry.beat(me.name, record, ttl_ms=self._ttl_ms)
        except StateError as error:
            # Others will rightly think us dead: without Redis we do nothing. The parts of us that have work there log
            # more about the outage, and by our second miss they have done so.
            self._missed += 1
            if self._missed > 1 and not outages.lasts:
                log.warning("%s; what needs it waits until it is back", error)
            return 0
        self._missed = 0
        self._alive = max(len(alive), 1)
        if self._on_alive is not None:
            self._on_alive(alive)
        if outages.lasts and (self._looking is None or self._looking.done()):
            # In a task of its own: a node of a Cluster may take its time, and a heartbeat cannot wait.
            self._looking = asyncio.get_running_loop().create_task(self._say_if_back(seen))
        return left

    async def _say_if_back(self, seen: int) -> None:
        """`seen`: from before the beat that went well. A line that was logged since may be newer than that beat."""
        try:
            # In a Cluster the beat has reached only one node.
            if not await refusal(self._registry.client) and outages.seen == seen:
                outages.over()
        except StateError as error:
            log.debug("not back yet: %s", error)

    async def counted(self) -> Counted:
        """All that this process counted since it began."""
        self._count(self._describe(), scripts=True)
        return await self._counters.all()

    def _count(self, described: dict[str, Any], *, scripts: bool) -> None:
        for name, value in described.get("counts", {}).items():
            if isinstance(value, dict):
                self._counters.put("queue", name, value)
            else:
                self._counters.put("process", self._identity.role, {name: value})
        if scripts:
            self._counters.put_all(call_times)

    async def _tell(self) -> int:
        most = max(1, round(self._records_a_second * self._beat_s))
        return await self._tally.tell(now_ms=time.monotonic() * 1000, most=most)

    async def _tell_more(self) -> int:
        """As with a beat: an outage of Redis does not end the process."""
        try:
            return await self._tell()
        except StateError as error:
            log.debug("counters not told: %s", error)
            return 0

    async def withdraw(self) -> None:
        """Stop being one of the living. More may still be counted, and told."""
        self._withdrawn = True
        try:
            await self._registry.leave(self._identity.name)
        except StateError as error:
            log.debug("withdrew without saying so: %s", error)

    async def leave(self) -> None:
        """The end: tell the rest of what was counted, and leave nothing of us behind."""
        if self._looking is not None:
            await cancel([self._looking])
        try:
            self._count(self._describe(), scripts=True)
            await self._tally.leave(now_ms=time.monotonic() * 1000)
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
        # A lost terminal also ends the process, but not in a crash.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._over.set)

    def spawn(self, task: asyncio.Task[None]) -> None:
        task.add_done_callback(self.check)
        self._tasks.append(task)

    def check(self, task: asyncio.Task[None]) -> None:
        """A task that ended with an exception ends the process: going on half alive would hide it."""
        if not task.cancelled() and (error := task.exception()) is not None:
            # A wrong setting is the user's to mend: one line says it. Anything else is our bug.
            if isinstance(error, InvalidConfig):
                log.error("%s", error)
            else:
                log.error("ends because of an error", exc_info=error)
            self.crash = self.crash or error
            self._over.set()

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback that raised leaves something half done for ever, as a lease that is renewed but not delivered."""
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
