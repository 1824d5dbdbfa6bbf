"""Queues that this server puts messages into: opened once, used by one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from fleet.errors import SourceError
from fleet.sources.base import Outgoing, Publisher, Unsent, Unsure
from fleet.sources.halfway import told_half_way
from fleet.sources.open import open_publisher

MOST = 64
BATCH = 500


class _Open:
    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.mine = asyncio.Lock()
        self.closed = False

    async def close(self) -> None:
        async with self.mine:
            if not self.closed:
                self.closed = True
                with suppress(SourceError):
                    await self.publisher.close()


class Publishers:
    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}  # the most recently used is last
        self._opening = asyncio.Lock()

    async def publish(self, uri: str, messages: Sequence[Outgoing]) -> list[str | None]:
        """For each message None if the queue took it, else why not."""
        while True:
            one = await self._get(uri)
            async with one.mine:
                if one.closed:
                    continue
                answers: list[str | None] = []
                try:
                    for first in range(0, len(messages), BATCH):
                        answers += await one.publisher.publish(messages[first : first + BATCH])
                        if any(isinstance(why, Unsent | Unsure) for why in answers):
                            # What was sent now would overtake them.
                            behind = Unsent("not sent: an earlier message met trouble")
                            return answers + [behind] * (len(messages) - len(answers))
                except SourceError as error:
                    # The next caller opens what is broken anew.
                    one.closed = True
                    self._open.pop(uri, None)
                    with suppress(SourceError):
                        await one.publisher.close()
                    under_way = set(range(len(answers), min(len(answers) + BATCH, len(messages))))
                    refusals = [*answers, *[None] * (len(messages) - len(answers))]
                    done = {place for place, why in enumerate(answers) if why is None}
                    return told_half_way(refusals, accepted=done, under_way=under_way, error=error)
                return answers

    async def _get(self, uri: str) -> _Open:
        async with self._opening:
            one = self._open.pop(uri, None)
            if one is None:
                publisher = open_publisher(uri)
                await publisher.open()
                one = _Open(publisher)
            self._open[uri] = one
            oldest = self._open.pop(next(iter(self._open))) if len(self._open) > MOST else None
        if oldest is not None:
            await oldest.close()
        return one

    async def close(self) -> None:
        while self._open:
            await self._open.popitem()[1].close()
