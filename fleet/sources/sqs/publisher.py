"""Putting messages into an SQS queue, FIFO or standard: ten per call, with an answer for each."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from fleet.errors import SourceError, SourceUnavailable
from fleet.sources.base import Outgoing, Unsent, never
from fleet.sources.daemon_threads import DaemonThreads
from fleet.sources.halfway import told_half_way
from fleet.sources.sqs.address import SqsAddress
from fleet.sources.sqs.client import BATCH, GROUP_ATTRIBUTE, QueueFacts, SqsQueue

OWN_GROUP = "fleet.none."
"""Begins the FIFO group of a message that was sent without one: FIFO requires a group, so each gets its own."""
BATCH_BYTES = 256 * 1024
"""Per call. AWS has raised it to 1 MiB, others have not; a larger message goes alone."""
MAX_DELAY_S = 900
_NAME = re.compile(r"[!-~]{1,128}")
"""What a FIFO queue takes as a group or a dedup id."""
_NO_TEXT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HELD_UP = Unsent("not sent: an earlier message of its group was not accepted")


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
        told = self._queue.send([_entry(messages[place], self._facts) for place in batch])
        if told is None:
            failed: set[str] = set()
            for place in batch:
                if messages[place].group in failed:
                    answers[place] = _HELD_UP
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
            size = _size(message)
            if batch and (len(batch) == BATCH or batch_bytes + size > BATCH_BYTES):
                yield batch
                batch, batch_bytes = [], 0
            if message.group in stopped:
                answers[place] = _HELD_UP
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


def refusal(message: Outgoing, facts: QueueFacts) -> str | None:
    """Why SQS cannot take a message; None if it can."""
    try:
        text = message.body.decode()
    except UnicodeDecodeError:
        return "SQS takes text only, and the body is not UTF-8"
    if not text:
        return "SQS does not take an empty body"
    if _NO_TEXT.search(text):
        return "the body holds a character that SQS does not take"
    if _size(message) > facts.most_bytes:
        return f"{_size(message)} bytes are more than the {facts.most_bytes} that the queue takes"
    if message.delay_ms < 0:
        return "delay is negative"
    if facts.is_fifo:
        if message.delay_ms:
            return "a FIFO queue of SQS cannot delay a single message"
        if message.group and not _NAME.fullmatch(message.group):
            return "a FIFO group of SQS is 1 to 128 letters, digits and punctuation of ASCII, no spaces"
        if message.group and message.group.startswith(OWN_GROUP):
            return f"a group named {OWN_GROUP}… stands for no group"
        return None
    if message.group and _NO_TEXT.search(message.group):
        return "the group holds a character that SQS does not take"
    if message.delay_ms > MAX_DELAY_S * 1000:
        return f"SQS delays a message by {MAX_DELAY_S} s at most"
    return None


def _entry(message: Outgoing, facts: QueueFacts) -> dict[str, Any]:
    entry: dict[str, Any] = {"MessageBody": message.body.decode()}
    if facts.is_fifo:
        asked = message.dedup_id or message.id
        digest = hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()
        entry["MessageDeduplicationId"] = asked if _NAME.fullmatch(asked) else digest
        # The same for the same message: some queues look for repeated ids within a group only.
        entry["MessageGroupId"] = message.group or OWN_GROUP + digest
        return entry
    if message.group:
        entry["MessageAttributes"] = {GROUP_ATTRIBUTE: {"DataType": "String", "StringValue": message.group}}
    if message.delay_ms:
        entry["DelaySeconds"] = math.ceil(message.delay_ms / 1000)
    return entry


def _size(message: Outgoing) -> int:
    """The bytes that SQS counts, including a group as a standard queue carries it."""
    group = len(GROUP_ATTRIBUTE) + len("String") + len(message.group.encode("utf-8", "replace")) if message.group else 0
    return len(message.body) + group
