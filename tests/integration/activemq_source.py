"""A source of ActiveMQ, and what tests of one that may go away wait for."""

from __future__ import annotations

import asyncio
from functools import partial

from fleet.errors import SourceUnavailable
from fleet.sources.activemq.address import parse_address
from fleet.sources.activemq.source import ActiveMqSource
from fleet.sources.base import Depth, Received
from tests.waiting import answered, eventually

SOON_MS = 5_000
HEARTBEAT_MS = 1000


def source_of(uri: str, heartbeat_ms: int = 5000) -> ActiveMqSource:
    return ActiveMqSource(address=parse_address(uri), visibility_ms=30_000, heartbeat_ms=heartbeat_ms)


async def poll_again(source: ActiveMqSource, most: int = 50) -> list[Received]:
    """The first that comes, once the source has found its broker again."""
    async with asyncio.timeout(20):
        while not (received := await answered(partial(source.poll, most, SOON_MS), SourceUnavailable)):
            pass
        return received


async def emptied(source: ActiveMqSource) -> None:
    async def is_empty() -> bool:
        return await source.depth() == Depth(waiting=0, invisible=0, oldest_s=None)

    await eventually(is_empty)
