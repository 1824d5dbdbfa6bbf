"""What a test has an SQS answer, and what it reads of the answers."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fleet.sources.base import Receipt, Received
from fleet.sources.sqs.source import SqsSource
from tests.messages import held
from tests.servers.scripted_sqs import Answer, fixed, message
from tests.unit.sources.sqs.source import SOON_MS

EMPTY = fixed({})


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
