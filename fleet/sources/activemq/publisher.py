"""Putting messages into an ActiveMQ queue: sent in one go, each with a receipt, which comes once it is stored."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.errors import SourceError
from fleet.sources.activemq import frames
from fleet.sources.activemq.address import Address
from fleet.sources.activemq.line import HEARTBEAT_MS, Answer, StompLine
from fleet.sources.base import Outgoing, never
from fleet.sources.halfway import told_half_way

SENT_TOGETHER = 500
"""Messages whose receipts are awaited together: more would only wait in the broker's socket."""


class ActiveMqPublisher:
    """Appends to one queue. It connects again when it is used after its connection was lost."""

    def __init__(self, *, address: Address, heartbeat_ms: int = HEARTBEAT_MS) -> None:
        self._address = address
        self._heartbeat_ms = heartbeat_ms
        self._line: StompLine | None = None

    async def open(self) -> None:
        await self._connected()

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        results: list[str | None] = [never(frames.refusal(message)) for message in messages]
        rest = [index for index, refused in enumerate(results) if refused is None]
        accepted: set[int] = set()
        while rest:
            now, rest = rest[:SENT_TOGETHER], rest[SENT_TOGETHER:]
            try:
                line = await self._connected()
            except SourceError as error:
                return told_half_way(results, accepted=accepted, under_way=(), error=error)
            answers = await line.ask([frames.send(self._address.queue, messages[index]) for index in now])
            accepted |= {index for index, answer in zip(now, answers, strict=True) if answer == ""}
            refusals = [(index, answer) for index, answer in zip(now, answers, strict=True) if answer]
            for index, answer in refusals:
                results[index] = answer
            unanswered = [index for index, answer in zip(now, answers, strict=True) if answer is None]
            if unanswered and not _was_closed_over_a_refusal(answers):
                lost = line.unavailable()
                return told_half_way(results, accepted=accepted, under_way=set(unanswered), error=lost)
            rest = unanswered + rest
        return results

    async def close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    async def _connected(self) -> StompLine:
        if self._line is None or not self._line.is_up:
            await self.close()
            line = StompLine(address=self._address, heartbeat_ms=self._heartbeat_ms)
            await line.open()
            self._line = line
        return self._line


def _was_closed_over_a_refusal(answers: Sequence[Answer]) -> bool:
    """Whether the broker closed the connection over a refusal. It has then not read what came after that message.

    Only then may the rest be sent again. If the broker answered anything after its last refusal, it did read on, and
    the line was lost for another reason: what is unanswered may have been stored.
    """
    first = answers.index(None)
    return first > 0 and bool(answers[first - 1]) and all(answer is None for answer in answers[first:])
