"""Putting messages into an SQS queue, FIFO or standard: ten per call, with an answer for each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from fleet.errors import SourceError, SourceUnavailable
from fleet.sources.base import Outgoing, never
from fleet.sources.daemon_threads import DaemonThreads
from fleet.sources.halfway import told_half_way
from fleet.sources.sqs.address import SqsAddress
from fleet.sources.sqs.client import BATCH, SqsQueue
from fleet.sources.sqs.entry import HELD_UP, QueueFacts, entry_of, refusal, size_bytes

BATCH_BYTES = 256 * 1024
"""Per call. AWS has raised it to 1 MiB, others have not; a larger message goes alone."""


class SqsPublisher:
    """Appends to one queue. One call at a time goes out, so that a group keeps its order."""

    def __init__(self, *, address: SqsAddress, endpoint: str = "") -> None:
        self._name = address.name
        self._queue = SqsQueue(address=address, endpoint=endpoint, connections=1)
        self._threads: DaemonThreads | None = None
        self._facts = QueueFacts(is_fifo=address.is_fifo, most_bytes=BATCH_BYTES)

    async def open(self) -> None:
        if self._threads is None:
            self._threads = DaemonThreads(name=f"sqs-send-{self._name}", most=1)
        try:
            self._facts = await asyncio.wrap_future(self._threads.submit(self._queue.connect))
        except BaseException:
            await self.close()
            raise

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        """On a FIFO queue, if a message is not accepted, later ones of its group are not sent either.

        If SQS refuses one entry in the middle of a call, those behind it in the same call are in the queue; the reason
        given for the refused one says so.
        """
        if self._threads is None:
            raise SourceUnavailable(f"SQS queue {self._name} is not open")
        return await asyncio.wrap_future(self._threads.submit(lambda: self._publish(messages)))

    async def close(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.submit(self._queue.close)
            threads.stop()

    def _publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        answers: list[str | None] = [never(refusal(message, self._facts)) for message in messages]
        accepted: set[int] = set()
        stopped: set[str] = set()
        batch: list[int] = []
        try:
            for batch in self._batches(messages, answers, stopped):
                self._send(messages, batch, answers, accepted, stopped)
        except SourceError as error:
            return told_half_way(answers, accepted=accepted, under_way=set(batch), error=error)
        return answers

    def _send(
        self,
        messages: Sequence[Outgoing],
        batch: list[int],
        answers: list[str | None],
        accepted: set[int],
        stopped: set[str],
    ) -> None:
        told = self._queue.send([entry_of(messages[place], self._facts) for place in batch])
        if told is None:
            failed: set[str] = set()
            for place in batch:
                if messages[place].group in failed:
                    answers[place] = HELD_UP
                    continue
                self._send(messages, [place], answers, accepted, failed)
            stopped |= failed
            return
        for place, why in zip(batch, told, strict=True):
            if why is None:
                accepted.add(place)
            else:
                answers[place] = why + self._overtaken(messages, batch, told, place)
                self._stop(messages[place].group, stopped)

    def _batches(
        self, messages: Sequence[Outgoing], answers: list[str | None], stopped: set[str]
    ) -> Iterator[list[int]]:
        """Places of what can go in one call. Lazy, because a refusal holds up what has not been sent yet."""
        batch: list[int] = []
        batch_bytes = 0
        for place, message in enumerate(messages):
            if answers[place] is not None:
                self._stop(message.group, stopped)
                continue
            size = size_bytes(message)
            if batch and (len(batch) == BATCH or batch_bytes + size > BATCH_BYTES):
                yield batch
                batch, batch_bytes = [], 0
            if message.group in stopped:
                answers[place] = HELD_UP
                continue
            batch.append(place)
            batch_bytes += size
        if batch:
            yield batch

    def _stop(self, group: str | None, stopped: set[str]) -> None:
        if group and self._facts.is_fifo:
            stopped.add(group)

    def _overtaken(self, messages: Sequence[Outgoing], batch: list[int], told: list[str | None], place: int) -> str:
        group = messages[place].group
        behind = sum(
            other > place and why is None and messages[other].group == group
            for other, why in zip(batch, told, strict=True)
        )
        return f"; {behind} later of its group are in" if behind and group and self._facts.is_fifo else ""
