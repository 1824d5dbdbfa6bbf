"""Who looks into which pool, and when: signals to its homes, looks when something falls due, and a slow sweep.

A lost signal costs a sweep, never a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from fleet.errors import StateError
from fleet.state.registry import Registry
from fleet.state.scripts import SEP
from fleet.state.signals import Signals
from workers.exchange import PoolLink
from workers.homes import HOMES, Globs, Homes

SWEEP_S = 60.0
"""Each pool is asked this often, by the first of its homes, even without a signal. Spread evenly, so that ten thousand
idle pools cost some 170 calls a second, however many workers there are."""
POOLS_A_TURN = 20
"""Pools for each turn of the event loop: with ten thousand at once it would stand still for 60 ms."""
_RETRY_S = 1.0
UNPLACED = -1
"""The place in a pool that was opened just now."""
_ASKED_MOST = 8
"""From this place on nothing is passed on: where so many are full, all are, and one with room again looks by itself."""
_PASS_EVERY_S = 0.1


class Waking:
    """For one worker. `has_room`: whether it could take a lease."""

    def __init__(
        self,
        *,
        name: str,
        globs: Sequence[str],
        registry: Registry,
        links: Mapping[str, PoolLink],
        has_room: Callable[[], bool],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._name = name
        self._registry = registry
        self._links = links
        self._has_room = has_room
        self._is_stopping = is_stopping
        self._homes = Homes(name, globs)
        self._alive: set[str] = {name}
        self._peers: dict[str, Globs | None] = {name: None}
        """What each of the living serves; None for one that is not a worker. Our own is known without asking."""
        self._changed = asyncio.Event()
        self._ask_homes = asyncio.Event()
        self._passing: set[asyncio.Task[None]] = set()
        self._passed: dict[str, asyncio.TimerHandle] = {}
        """Pools whose signal was passed on just now."""
        self._more: set[str] = set()
        """Those of them that have more to pass on."""

    def jobs(self, signals: Signals) -> tuple[Coroutine[Any, Any, None], ...]:
        """What goes on for as long as the worker lives."""
        return self._follow(signals), self._ask_all(), self._sweep()

    # Which pools are ours to look into ------------------------------------------------------------

    def on_alive(self, names: set[str]) -> None:
        """Who lives, as our heartbeat heard."""
        if names != self._alive:
            self._alive = set(names)
            self._changed.set()

    def pools_changed(self) -> None:
        self._changed.set()

    async def _follow(self, signals: Signals) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._learn_peers()
            except StateError:
                # What a new worker serves is not known yet: until it is, its pools have us.
                asyncio.get_running_loop().call_later(_RETRY_S, self._changed.set)
            self._homes.follow({name: globs for name, globs in self._peers.items() if globs is not None})
            await signals.follow(await self._take_places())

    async def _learn_peers(self) -> None:
        """Ask each new process once what it serves."""
        self._peers = {name: globs for name, globs in self._peers.items() if name in self._alive}
        new = sorted(self._alive - self._peers.keys() - {self._name})
        for name, record in (await self._registry.records(new)).items():
            if record.get("role") != "worker":
                self._peers[name] = None
            elif "globs" in record:
                self._peers[name] = tuple(record["globs"])
        if self._alive - self._peers.keys() - {self._name}:
            # A worker that has not opened its pools yet hears nothing of them.
            asyncio.get_running_loop().call_later(_RETRY_S, self._changed.set)

    async def _take_places(self) -> set[str]:
        """The pools that we are a home of. A worker that becomes the first home of one asks at once, and so does every
        worker once for each pool that is new to it: those that were there before may have no room for what is ready."""
        ours: set[str] = set()
        for count, (code, link) in enumerate(list(self._links.items()), start=1):
            was, link.place = link.place, self._homes.place(code)
            if link.place < HOMES:
                ours.add(code)
            if was == UNPLACED or (link.place == 0 and was != 0):
                self._wake(link)
            elif link.place != 0 and was == 0:
                link.due.told(None)
            if count % POOLS_A_TURN == 0:
                await asyncio.sleep(0)
        return ours

    # Signals --------------------------------------------------------------------------------------

    def on_pool(self, code: str, message: str | None) -> None:
        """A pool that we are a home of has so many lanes ready (`+2`), or something is due there in so many ms; or we
        may have missed that (None)."""
        link = self._links.get(code)
        if link is None:
            return
        if message is not None and not message.startswith("+"):
            if link.place == 0:
                link.due.told(int(message))
        elif message is None or link.place == 0 or int(message) > link.place:
            self._wake_or_pass_on(link, link.place)

    def on_others(self, message: str) -> None:
        """A pool has more work than its homes take: these places in its order are asked."""
        code, start, end = message.split(SEP)
        link = self._links.get(code)
        if link is None:
            return
        place = self._homes.place(code, int(end))
        if int(start) <= place < int(end):
            self._wake_or_pass_on(link, place)

    def _wake_or_pass_on(self, link: PoolLink, place: int) -> None:
        # The first home looks in any case, and its call tells others of what it leaves.
        if 0 < place < _ASKED_MOST and (self._is_stopping() or not self._has_room()):
            self._pass_on(link.pool.code, place)
        self._wake(link)

    def _pass_on(self, code: str, place: int) -> None:
        """To twice as many each time: a worker that is full passes on in turn. With all full that would never end, so
        it is done only once in a while for a pool."""
        if code in self._passed:
            self._more.add(code)
            return
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._ask(code, 2 * place))
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)
        self._passed[code] = loop.call_later(_PASS_EVERY_S, self._passed_on, code, place)

    def _passed_on(self, code: str, place: int) -> None:
        del self._passed[code]
        if code in self._more:
            self._more.discard(code)
            if self._is_stopping() or not self._has_room():
                self._pass_on(code, place)

    async def _ask(self, code: str, start: int) -> None:
        try:
            await self._registry.wake(code, start, 2 * start)
        except StateError:
            return  # Redis is away: once it is back, every pool is asked

    def _wake(self, link: PoolLink) -> None:
        if link.place == 0:
            link.look()  # even without room, and to the very end: one worker has to see what is due
        elif not self._is_stopping():
            link.wake()

    # Without signals ------------------------------------------------------------------------------

    def ask_all(self) -> None:
        """Redis was away, and what was published meanwhile is lost."""
        self._ask_homes.set()

    async def _ask_all(self) -> None:
        while True:
            await self._ask_homes.wait()
            self._ask_homes.clear()
            for count, link in enumerate(list(self._links.values()), start=1):
                if link.place == 0:
                    self._wake(link)
                if count % POOLS_A_TURN == 0:
                    await asyncio.sleep(0)

    async def _sweep(self) -> None:
        while True:
            ours = [code for code, link in self._links.items() if link.place == 0]
            for code in ours:
                await asyncio.sleep(SWEEP_S / len(ours))
                link = self._links.get(code)
                if link is not None and link.place == 0:
                    self._wake(link)
            if not ours:
                await asyncio.sleep(1.0)
