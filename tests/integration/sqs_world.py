"""What tests of SQS have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fleet.clock import SystemClock
from fleet.sources.base import Outgoing, Publisher, Receipt, Received
from fleet.sources.open import open_publisher
from fleet.sources.sqs.address import parse_address
from fleet.sources.sqs.source import SqsSource

SOON_MS = 10_000


@asynccontextmanager
async def a_source(uri: str, *, visibility_ms: int = 30_000, connections: int = 1) -> AsyncIterator[SqsSource]:
    source = SqsSource(
        name="orders",
        address=parse_address(uri),
        visibility_ms=visibility_ms,
        connections=connections,
        clock=SystemClock(),
        long_poll_s=1,
    )
    await source.open()
    try:
        yield source
    finally:
        await source.close()


@asynccontextmanager
async def a_publisher(uri: str) -> AsyncIterator[Publisher]:
    publisher = open_publisher(uri)
    await publisher.open()
    try:
        yield publisher
    finally:
        await publisher.close()


async def send(uri: str, *bodies: str, group: str | None = "g") -> None:
    async with a_publisher(uri) as publisher:
        outgoing = [Outgoing(id=body, body=body.encode(), group=group) for body in bodies]
        assert await publisher.publish(outgoing) == [None] * len(bodies)


def bodies(received: list[Received]) -> list[str]:
    return [one.body.decode() for one in received]


def held(received: list[Received]) -> list[Receipt]:
    return [Receipt(one.broker_id, one.handle) for one in received]
