from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from fleet.sources.base import Held, Outgoing, Received, Source
from tests.conformance.kits import KITS, Kit


class Bench:
    """One queue with a publisher and a source, and as many more sources as a test asks for."""

    def __init__(self, kit: Kit, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._kit = kit
        self.short_ms = kit.short_ms
        self.publisher = kit.publisher()

    async def open(self) -> None:
        await self.publisher.open()
        self._stack.push_async_callback(self.publisher.close)

    async def source(self, visibility_ms: int = 30_000) -> Source:
        source = self._kit.source(visibility_ms)
        await source.open()
        self._stack.push_async_callback(source.close)
        return source

    async def send(self, *bodies: str, group: str | None = "g", dedup_id: str | None = None, delay_ms: int = 0) -> None:
        outgoing = [
            Outgoing(id=body, body=body.encode(), group=group, dedup_id=dedup_id, delay_ms=delay_ms) for body in bodies
        ]
        assert await self.publisher.publish(outgoing) == [None] * len(bodies)


def bodies(received: list[Received]) -> list[str]:
    return [one.body.decode() for one in received]


def held(received: list[Received]) -> list[Held]:
    return [Held(one.broker_id, one.handle) for one in received]


async def _opened(kind: str, folder: Path) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        bench = Bench(KITS[kind](folder), stack)
        await bench.open()
        yield bench


@pytest.fixture(params=sorted(KITS))
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    async for bench in _opened(request.param, tmp_path):
        yield bench


@pytest.fixture(params=sorted(kind for kind, kit in KITS.items() if kit.holds_groups))
async def holding_bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """A queue that shows nothing of a group while an older message of it is invisible."""
    async for bench in _opened(request.param, tmp_path):
        assert (await bench.source()).holds_groups
        yield bench
