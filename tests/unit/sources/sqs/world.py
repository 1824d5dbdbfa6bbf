"""What the tests of the SQS source share: an SQS that answers what a test says, and a source of it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from fleet.clock import SystemClock
from fleet.sources.base import Receipt, Received
from fleet.sources.sqs.address import parse_address
from fleet.sources.sqs.source import SqsSource
from tests.servers.scripted_sqs import Answer, ScriptedSqs, fixed, message

SOON_MS = 10_000
EMPTY = fixed({})


@asynccontextmanager
async def a_source(sqs: ScriptedSqs, *, connections: int = 1, visibility_ms: int = 30_000) -> AsyncIterator[SqsSource]:
    source = SqsSource(
        name="orders",
        address=parse_address(sqs.url),
        visibility_ms=visibility_ms,
        connections=connections,
        clock=SystemClock(),
    )
    await source.open()
    try:
        yield source
    finally:
        await source.close()


def messages(*numbers: int, **more: Any) -> Answer:
    return {"Messages": [message(number, **more) for number in numbers]}


class Gate:
    """A receive that comes back when a test says so."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._event = threading.Event()

    def __call__(self, asked: dict[str, Any]) -> Answer:
        assert self._event.wait(10)
        return self._answer

    def open(self) -> None:
        self._event.set()


def numbers(batch: list[Received]) -> list[int]:
    return [int(one.broker_id[1:]) for one in batch]


def held(batch: list[Received]) -> list[Receipt]:
    return [Receipt(one.broker_id, one.handle) for one in batch]


@contextmanager
def heard(text: str) -> Iterator[asyncio.Event]:
    """Set when the source logs it."""
    event, log = asyncio.Event(), logging.getLogger("fleet.sources")

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if text in record.getMessage():
                event.set()

    ear, level = Ear(), log.level
    log.addHandler(ear)
    log.setLevel(logging.DEBUG)
    try:
        yield event
    finally:
        log.setLevel(level)
        log.removeHandler(ear)


async def a_batch(source: SqsSource, most: int = 10) -> list[Receipt]:
    return held(await source.poll(most, SOON_MS))
