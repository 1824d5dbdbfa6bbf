"""A poll of messages of our own: it waits for a signal of the engine, and loses nothing when it is cancelled."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence

from fleet.errors import SourceError
from fleet.sources.base import Receipt, Received
from fleet.state.connect import Client
from fleet.state.keys import OWN_QUEUE_CHANNEL
from fleet.state.signals import Signals
from fleet.waiting import cancel, happens

LOOK_S = 5.0
"""How often a waiting poll looks without a signal: one may be lost."""


class Polling(ABC):
    def __init__(self, *, redis_url: str) -> None:
        self._client: Client | None = None
        self._redis_url = redis_url
        self._shows = asyncio.Event()
        self._signals: asyncio.Task[None] | None = None
        self._receiving: asyncio.Task[tuple[list[Received], int | None]] | None = None
        self._over: list[Received] = []
        """Received by a poll that was cancelled, or more than the next one asks for."""

    @abstractmethod
    async def _ask(self, most: int) -> tuple[list[Received], int | None]:
        """Receive now. If there is nothing: the ms until there may be something, if that is known."""

    @abstractmethod
    async def nack(self, receipts: Sequence[tuple[Receipt, int]]) -> list[bool]: ...

    @property
    @abstractmethod
    def prefix(self) -> str:
        """What a signal says of our messages."""

    async def poll(self, max_messages: int, wait_ms: int) -> list[Received]:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + wait_ms / 1000
        self._listen()
        while True:
            self._shows.clear()
            due_ms = await self._receive(max_messages)
            left_s = give_up - loop.time()
            if self._over or left_s <= 0:
                taken, self._over = self._over[:max_messages], self._over[max_messages:]
                return taken
            # A millisecond more than due: timers may fire a little early, and the loop would then spin.
            due_s = (due_ms + 1) / 1000 if due_ms is not None else left_s
            await happens(self._shows, within_s=min(left_s, due_s, LOOK_S))

    async def give_back(self) -> None:
        """The end: what no poll has returned is shown again at once."""
        if self._signals is not None:
            await cancel([self._signals])
            self._signals = None
        try:
            if self._receiving is not None:
                await self._receive(0)
            if self._over:
                over, self._over = self._over, []
                await self.nack([(Receipt(one.broker_id, one.handle), 0) for one in over])
        except SourceError:
            # They show again by themselves when their visibility timeout ends.
            self._over = []

    async def _receive(self, most: int) -> int | None:
        """Fill `_over` if it is empty. Returns the ms until there will be something to receive, if that is known.

        A call once begun is not cancelled: what it returns is leased to us.
        """
        if self._over:
            return None
        if self._receiving is None:
            self._receiving = asyncio.get_running_loop().create_task(self._ask(most))
        try:
            self._over, due_ms = await asyncio.shield(self._receiving)
        except asyncio.CancelledError:
            raise  # what it returns, even at this very moment, is for the next poll
        except SourceError:
            self._receiving = None
            raise
        self._receiving = None
        return due_ms

    def _listen(self) -> None:
        """Started by the first poll: a caller that only asks for the depth needs no signals."""
        if self._signals is None and self._client is not None:
            signals = Signals(
                client=self._client,
                url=self._redis_url,
                handlers={OWN_QUEUE_CHANNEL: self._on_signal},
                on_subscribed=self._shows.set,
            )
            self._signals = asyncio.get_running_loop().create_task(signals.run())

    def _on_signal(self, prefix: str) -> None:
        if prefix == self.prefix:
            self._shows.set()
