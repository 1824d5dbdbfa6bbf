"""What tests put into queues and take out again, of whatever kind these are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from fleet.sources.base import Outgoing, Publisher, Receipt, Received
from fleet.sources.open import open_publisher


class _Opens(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


OpensT = TypeVar("OpensT", bound=_Opens)


@asynccontextmanager
async def opened(one: OpensT) -> AsyncIterator[OpensT]:
    """A source or a publisher, for as long as it is used."""
    await one.open()
    try:
        yield one
    finally:
        await one.close()


async def send(uri: str, *bodies: str, group: str | None = "g", delay_ms: int = 0) -> None:
    async with opened(open_publisher(uri)) as publisher:
        await publish(publisher, *bodies, group=group, delay_ms=delay_ms)


async def publish(publisher: Publisher, *bodies: str, group: str | None = "g", delay_ms: int = 0) -> None:
    """Each under an id that is its body. All of them are accepted."""
    outgoing = [Outgoing(id=body, body=body.encode(), group=group, delay_ms=delay_ms) for body in bodies]
    assert await publisher.publish(outgoing) == [None] * len(bodies)


def bodies(received: Sequence[Received]) -> list[str]:
    return [one.body.decode() for one in received]


def held(received: Sequence[Received]) -> list[Receipt]:
    return [Receipt(one.broker_id, one.handle) for one in received]
