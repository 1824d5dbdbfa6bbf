"""What tests of JetStream have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from fleet.errors import SourceUnavailable
from fleet.sources.base import Outgoing, Publisher, Receipt, Received, Source
from fleet.sources.open import open_publisher, open_source

SOON_MS = 5_000
LONG_MS = 60_000


@dataclass
class Place:
    """Opens sources and publishers, and closes them."""

    stack: AsyncExitStack

    async def source(self, uri: str, visibility_ms: int = LONG_MS) -> Source:
        source = open_source("q", uri, visibility_ms)
        await source.open()
        self.stack.push_async_callback(source.close)
        return source

    async def publisher(self, uri: str) -> Publisher:
        publisher = open_publisher(uri)
        await publisher.open()
        self.stack.push_async_callback(publisher.close)
        return publisher

    async def send(self, uri: str, numbers: Sequence[int], *, group: str | None = "g") -> None:
        publisher = await self.publisher(uri)
        outgoing = [Outgoing(id=f"{number}", body=b"%d" % number, group=group) for number in numbers]
        assert await publisher.publish(outgoing) == [None] * len(numbers)


def held(received: Sequence[Received]) -> list[Receipt]:
    return [Receipt(one.broker_id, one.handle) for one in received]


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


async def until_it_answers(source: Source) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await source.depth()
                return
            except SourceUnavailable:
                await asyncio.sleep(0.05)
