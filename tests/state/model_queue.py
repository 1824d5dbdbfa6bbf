"""A queue of somebody else's in plain Python: what it shows whom, and which receipt is the newest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from fleet.sources.base import Depth, Receipt, Received

VISIBILITY_MS = 30_000


@dataclass
class Sent:
    number: int
    group: str
    shown: int = 0
    until_ms: int = 0
    """Shown to nobody before: it is out, or was given back with a delay."""
    is_gone: bool = False
    is_unseen: bool = False
    """Who was given it last died before anybody else heard of that."""

    @property
    def receipt(self) -> str:
        return f"{self.number}.{self.shown}"


@dataclass
class ModelQueue:
    """Messages are numbered in the order in which they were sent. `holds_groups`: as SQS FIFO does, or as ActiveMQ."""

    holds_groups: bool
    now_ms: int
    sent: list[Sent] = field(default_factory=list)

    shows_in_order = True
    is_looked_into = False
    gives_few_groups = False
    crash_wait_ms = 0
    visibility_ms = VISIBILITY_MS

    def send(self, group: str) -> None:
        self.sent.append(Sent(len(self.sent), group))

    def lapse(self) -> None:
        """Its clock steps, or everybody was away for long: what is out is shown again."""
        for message in self.sent:
            message.until_ms = min(message.until_ms, self.now_ms)

    def receive(self, most: int) -> list[Received]:
        left = [message for message in self.sent if not message.is_gone]
        if not self.holds_groups:
            left.sort(key=lambda message: message.shown == 0)  # what comes again comes before what is new
        held_groups: set[str] = set()
        given: list[Sent] = []
        for message in left:
            if message.until_ms > self.now_ms:
                held_groups.add(message.group)
            elif len(given) < most and not (self.holds_groups and message.group in held_groups):
                given.append(message)
        for message in given:
            message.shown += 1
            message.until_ms, message.is_unseen = self.now_ms + VISIBILITY_MS, False
        return [self._received(message) for message in given]

    def _received(self, message: Sent) -> Received:
        body = {"id": f"m{message.number}", "poolCode": "P", "mediationTarget": "http://127.0.0.1/"}
        text = json.dumps(body | {"messageGroupId": message.group}).encode()
        group = message.group if self.holds_groups else None
        return Received(str(message.number), message.receipt, text, group, message.shown)

    def _of(self, held: Receipt) -> Sent:
        message = self.sent[int(held.broker_id)]
        assert message.is_gone or message.is_unseen or held.handle == message.receipt, "there is a newer receipt"
        return message

    # What a coordinator asks of its source -----------------------------------------------------------

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def poll(self, max_messages: int, wait_ms: int) -> list[Received]:
        return self.receive(max_messages)

    async def ack(self, held: Sequence[Receipt]) -> list[bool]:
        done = []
        for one in held:
            message = self._of(one)
            message.is_gone = message.is_gone or one.handle == message.receipt
            done.append(message.is_gone)
        return done

    async def nack(self, held: Sequence[tuple[Receipt, int]]) -> list[bool]:
        done = []
        for one, delay_ms in held:
            message = self._of(one)
            done.append(not message.is_gone and one.handle == message.receipt)
            if done[-1]:
                message.until_ms = self.now_ms + delay_ms
        return done

    async def extend(self, held: Sequence[Receipt], visibility_ms: int) -> list[bool]:
        return [True] * len(held)

    async def depth(self) -> Depth:
        return Depth(sum(not message.is_gone for message in self.sent), 0, None)
