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
from workers.claim import PoolLink
from workers.homes import HOMES, Globs, Homes

SWEEP_S = 60.0
"""Each pool is asked this often, by the first of its homes, even if nobody signals. Spread evenly, so that ten thousand
idle pools cost some 170 calls a second, however many workers there are."""
_POOLS_A_TURN = 100
"""Of the event loop: with ten thousand at once it would stand still for 60 ms."""
_RETRY_S = 1.0


class Waking:
    """For one worker. `has_room`: whether the worker could take a lease of a pool, or waits for room there anyway."""

    def __init__(
        self,
        *,
        name: str,
        globs: Sequence[str],
        registry: Registry,
        links: Mapping[str, PoolLink],
        has_room: Callable[[PoolLink], bool],
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
        """What each of the living serves: None where that is no worker. We know of ourselves without being told."""
        self._changed = asyncio.Event()
        self._ask = asyncio.Event()
        self._passing: set[asyncio.Task[None]] = set()

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
                # Who is new goes by no name yet: its pools have us until it is known.
                asyncio.get_running_loop().call_later(_RETRY_S, self._changed.set)
            self._homes.follow({name: globs for name, globs in self._peers.items() if globs is not None})
            await signals.follow(await self._take_places())

    async def _learn_peers(self) -> None:
        """Ask what each new one serves, once."""
        self._peers = {name: globs for name, globs in self._peers.items() if name in self._alive}
        new = sorted(self._alive - self._peers.keys() - {self._name})
        for name, record in (await self._registry.records(new)).items():
            is_worker = record.get("role") == "worker"
            self._peers[name] = tuple(record.get("globs", ("*",))) if is_worker else None

    async def _take_places(self) -> set[str]:
        """The pools that we are a home of. Who comes to look for one asks at once."""
        ours: set[str] = set()
        for count, (code, link) in enumerate(list(self._links.items()), start=1):
            was, link.place = link.place, self._homes.place(code)
            if link.place < HOMES:
                ours.add(code)
            if link.place == 0 and was != 0:
                self._wake(link)
            elif link.place != 0 and was == 0:
                link.look_in(None)
            if count % _POOLS_A_TURN == 0:
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
                link.look_in(int(message))
        elif link.place == 0 or (message is not None and int(message) > link.place):
            self._wake_or_pass_on(link, HOMES)

    def on_others(self, message: str) -> None:
        """A pool has more work than its homes take: these places in its order are asked."""
        code, start, end = message.split(SEP)
        link = self._links.get(code)
        if link is not None and int(start) <= self._homes.place(code, int(end)) < int(end):
            self._wake_or_pass_on(link, int(end))

    def _wake_or_pass_on(self, link: PoolLink, beyond: int) -> None:
        if self._is_stopping() or not self._has_room(link):
            task = asyncio.get_running_loop().create_task(self._pass_on(link.pool.code, beyond))
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)
        self._wake(link)

    async def _pass_on(self, code: str, beyond: int) -> None:
        try:
            await self._registry.wake(code, beyond, 2 * beyond)
        except StateError:
            return  # Redis is away: who comes back asks

    def _wake(self, link: PoolLink) -> None:
        if not self._is_stopping():
            link.wake()

    # Without signals ------------------------------------------------------------------------------

    def ask_all(self) -> None:
        """Redis was away, and what was published meanwhile is lost."""
        self._ask.set()

    async def _ask_all(self) -> None:
        while True:
            await self._ask.wait()
            self._ask.clear()
            for count, link in enumerate(list(self._links.values()), start=1):
                if link.place == 0:
                    self._wake(link)
                if count % _POOLS_A_TURN == 0:
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
