"""Who uses the queues of a storm: senders that repeat what nobody answered, and receivers, some slow, some forgetful.

What they saw is in a journal. A receiver keeps to AWS's rules for order: of a group it deletes what it was shown in
order, and nothing behind what it gives back.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable
from typing import Any

from tests.chaos.sqs_judge import Deleted, Journal, Letter, Shown, is_fifo
from tests.chaos.sqs_wire import NoAnswer, Refused, Wire

FIFO, STANDARD, DEAD_FIFO, DEAD_STANDARD = "storm.fifo", "storm", "dead.fifo", "dead"
QUEUES = (FIFO, STANDARD, DEAD_FIFO, DEAD_STANDARD)
CHURNED = ("churn-1.fifo", "churn-2.fifo")
PARTITIONS = 8
SEVERAL = {
    "FifoQueue": "true",
    "PartitionCount": str(PARTITIONS),
    "FifoThroughputLimit": "perMessageGroupId",
    "DeduplicationScope": "messageGroup",
}
VISIBILITY_S = 3
WAIT_S = 1
GROUPS = 24
POISON_EVERY = 9
"""One message in so many is never deleted where it was sent to: it has to become a dead letter. It comes in all groups
at about the same time, so that several doors see that something moves."""
_SENDERS = 6
_REPEATED = 0.2
_SLOW, _FORGETFUL = 0.08, 0.04


def url(queue: str) -> str:
    return f"http://localhost/000000000000/{queue}"


class Crowd:
    def __init__(self, ports: list[int], seed: int, *, receivers: int, pause_s: float) -> None:
        self._ports = ports
        self._dice = random.Random(seed)
        self._receivers = receivers
        self._pause_s = pause_s
        self.journal = Journal()
        self.sending = asyncio.Event()
        self.sending.set()
        self._tasks: list[asyncio.Task[None]] = []
        self._senders: list[asyncio.Task[None]] = []
        self._wires: list[Wire] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._senders = [loop.create_task(self._send(number)) for number in range(_SENDERS)]
        self._senders += [loop.create_task(self._come_and_go(number)) for number in range(2 * len(CHURNED))]
        # Of eight receivers three ask the ordered queue, three the standard one, and two their dead letters.
        names = (FIFO, STANDARD, FIFO, DEAD_FIFO, FIFO, STANDARD, STANDARD, DEAD_STANDARD)
        self._tasks = [loop.create_task(self._receive(names[i % len(names)])) for i in range(self._receivers)]

    async def stop_sending(self) -> None:
        self.sending.clear()
        await asyncio.gather(*self._senders)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        done = await asyncio.gather(*self._tasks, return_exceptions=True)
        for error in done:
            if not isinstance(error, asyncio.CancelledError):
                raise AssertionError("a receiver ended") from error

    async def aclose(self) -> None:
        for wire in self._wires:
            wire.close()
        await asyncio.sleep(0)  # an aborted transport closes its socket with the next turn

    def failed(self) -> BaseException | None:
        """Why somebody gave up: a client of ours does so only where it was told what cannot be."""
        for task in [*self._tasks, *self._senders]:
            if task.done() and not task.cancelled() and task.exception() is not None:
                return task.exception()
        return None

    def wire(self) -> Wire:
        wire = Wire(self._ports, random.Random(self._dice.random()))
        self._wires.append(wire)
        return wire

    # Senders ------------------------------------------------------------------------------------------

    async def _send(self, number: int) -> None:
        wire, dice = self.wire(), random.Random(self._dice.random())
        groups = [group for group in range(GROUPS) if group % _SENDERS == number]
        place = 0
        while self.sending.is_set():
            for group in groups:
                await self._send_one(wire, FIFO, f"g{group}/{place}", dice)
                await self._send_one(wire, STANDARD, f"s{group}/{place}", dice)
                await asyncio.sleep(self._pause_s * dice.random() * 2)
            place += 1

    async def _send_one(self, wire: Wire, queue: str, body: str, dice: random.Random) -> None:
        params: dict[str, Any] = {"QueueUrl": url(queue), "MessageBody": body}
        if is_fifo(queue):
            params |= {"MessageGroupId": body.partition("/")[0], "MessageDeduplicationId": body}
        found = await _until_answered(wire, "SendMessage", params)
        self.journal.accepted[body] = queue
        if is_fifo(queue) and dice.random() < _REPEATED:
            again = await _until_answered(wire, "SendMessage", params)
            assert again["SequenceNumber"] == found["SequenceNumber"], f"{body} was accepted twice"

    async def _come_and_go(self, number: int) -> None:
        """Queues that are made and deleted, by two at once each."""
        wire, dice = self.wire(), random.Random(self._dice.random())
        queue = CHURNED[number % len(CHURNED)]
        while self.sending.is_set():
            body = {"QueueUrl": url(queue), "MessageBody": "soon gone", "MessageGroupId": "g"}
            for verb, params in (
                ("CreateQueue", {"QueueName": queue, "Attributes": SEVERAL}),
                ("SendMessage", body | {"MessageDeduplicationId": str(dice.random())}),
                ("DeleteQueue", {"QueueUrl": url(queue)}),
            ):
                try:
                    await wire.call(verb, params)
                except NoAnswer:
                    break
                except Refused as refused:
                    # The other one was quicker.
                    assert refused.type == "QueueDoesNotExist", refused
                await asyncio.sleep(self._pause_s * dice.random())

    # Receivers ----------------------------------------------------------------------------------------

    async def _receive(self, queue: str) -> None:
        wire, dice = self.wire(), random.Random(self._dice.random())
        while True:
            most = dice.choice((1, 3, 10))
            params = {"QueueUrl": url(queue), "MaxNumberOfMessages": most, "WaitTimeSeconds": WAIT_S}
            began_s = time.monotonic()
            try:
                found = (await wire.call("ReceiveMessage", params, within_s=WAIT_S + 3)).get("Messages", [])
            except NoAnswer:
                await asyncio.sleep(0.05)
                continue
            if not found:
                continue
            letters = tuple(Letter(one["MessageId"], one["Body"]) for one in found)
            shown_s = time.monotonic()
            self.journal.shown.append(Shown(queue, began_s, shown_s, letters))
            if dice.random() < _FORGETFUL:
                continue
            if dice.random() < _SLOW:
                await asyncio.sleep(VISIBILITY_S * dice.uniform(0.7, 1.4))
            handles = {one["MessageId"]: one["ReceiptHandle"] for one in found}
            good, back = _sorted_out(queue, letters)
            await self._delete(wire, queue, good, handles, began_s + VISIBILITY_S, shown_s + VISIBILITY_S)
            await self._give_back(wire, queue, back, handles)

    async def _delete(
        self, wire: Wire, queue: str, letters: list[Letter], handles: dict[str, str], held_s: float, until_s: float
    ) -> None:
        if not letters:
            return
        began_s = time.monotonic()
        entries = [
            {"Id": str(i), "ReceiptHandle": handles[letter.id]} for i, letter in enumerate(letters)
        ]  # in one batch: the later ones are deleted whatever becomes of the first
        found = await _until_answered(wire, "DeleteMessageBatch", {"QueueUrl": url(queue), "Entries": entries})
        ended_s = time.monotonic()
        for one in found["Successful"]:
            self.journal.deleted.append(Deleted(queue, began_s, ended_s, letters[int(one["Id"])], until_s, held_s))

    async def _give_back(self, wire: Wire, queue: str, letters: list[Letter], handles: dict[str, str]) -> None:
        for letter in reversed(letters):
            params = {"QueueUrl": url(queue), "ReceiptHandle": handles[letter.id], "VisibilityTimeout": 0}
            try:
                await wire.call("ChangeMessageVisibility", params)
            except (NoAnswer, Refused):
                return  # it comes back by itself


def _sorted_out(queue: str, letters: Iterable[Letter]) -> tuple[list[Letter], list[Letter]]:
    """What is deleted, and what goes back: poison, and of an ordered queue what stands behind it in its group."""
    good: list[Letter] = []
    back: list[Letter] = []
    held: set[str] = set()
    for letter in letters:
        is_poison = queue in (FIFO, STANDARD) and letter.place % POISON_EVERY == POISON_EVERY - 1
        if is_poison or letter.group in held:
            back.append(letter)
            if is_fifo(queue):
                held.add(letter.group)
        else:
            good.append(letter)
    return good, back


async def _until_answered(wire: Wire, verb: str, params: dict[str, Any]) -> dict[str, Any]:
    while True:
        try:
            return await wire.call(verb, params)
        except NoAnswer:
            await asyncio.sleep(0.05)
