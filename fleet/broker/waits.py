"""Waiting for messages: by signal, however many wait in this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from fleet.state.connect import Client
from fleet.state.keys import OWN_QUEUE_CHANNEL
from fleet.state.signals import Signals
from fleet.waiting import end, happens

LOOK_S = 5.0
"""How often one who waits looks without a signal: one may be lost."""


class Waiter:
    """Begins before the look that finds nothing: a signal right after that look is not missed."""

    def __init__(self) -> None:
        self.prefix = ""
        """Of the messages that it waits for; empty as long as it is not known, and then any signal may mean it."""
        self.shows = asyncio.Event()

    async def wait(self, *, left_s: float, due_ms: int | None) -> None:
        # A millisecond more than due: timers may fire a little early, and the loop would then spin.
        due_s = (due_ms + 1) / 1000 if due_ms is not None else left_s
        await happens(self.shows, within_s=min(left_s, due_s, LOOK_S))


class Waits:
    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        self._url = url
        self._waiters: set[Waiter] = set()
        self._listening: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def waiter(self) -> Iterator[Waiter]:
        if self._listening is None:
            signals = Signals(
                client=self._client,
                url=self._url,
                handlers={OWN_QUEUE_CHANNEL: self._on_signal},
                on_subscribed=self._look_all,
            )
            self._listening = asyncio.get_running_loop().create_task(signals.run())
        waiter = Waiter()
        self._waiters.add(waiter)
        try:
            yield waiter
        finally:
            self._waiters.discard(waiter)

    async def close(self) -> None:
        if self._listening is not None:
            await end([self._listening])
            self._listening = None

    def _on_signal(self, prefix: str) -> None:
        for waiter in self._waiters:
            if waiter.prefix in ("", prefix):
                waiter.shows.set()

    def _look_all(self) -> None:
        for waiter in self._waiters:
            waiter.shows.set()
