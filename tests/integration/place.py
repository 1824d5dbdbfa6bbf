"""A place to open sources and publishers at, and what tests of one that may go away wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from fleet.errors import SourceUnavailable
from fleet.sources.base import Publisher, Received, Source
from fleet.sources.open import open_publisher, open_source
from tests.messages import held, opened, publish

SOON_MS = 5_000
LONG_MS = 60_000


@dataclass
class Place:
    """Opens sources and publishers, and closes them."""

    stack: AsyncExitStack

    async def source(self, uri: str, visibility_ms: int = LONG_MS) -> Source:
        return await self.stack.enter_async_context(opened(open_source("q", uri, visibility_ms)))

    async def publisher(self, uri: str) -> Publisher:
        return await self.stack.enter_async_context(opened(open_publisher(uri)))

    async def send(self, uri: str, numbers: Sequence[int], *, group: str | None = "g") -> None:
        publisher = await self.publisher(uri)
        await publish(publisher, *map(str, numbers), group=group)


def numbers_of(received: Sequence[Received]) -> list[int]:
    return [int(one.body) for one in received]


async def drained(source: Source, seen: list[int], until: int, *, most: int = 50) -> None:
    """Poll and ack until `until` different messages were seen; what cannot be had just now is asked for again."""
    async with asyncio.timeout(40):
        while len(set(seen)) < until:
            try:
                received = await source.poll(most, 1000)
                seen += numbers_of(received)
                assert all(await source.ack(held(received)))
            except SourceUnavailable:
                await asyncio.sleep(0.05)
