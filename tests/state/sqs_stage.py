"""Several SQS doors over one Redis, without a socket: each knows what it has seen itself, and all have one time."""

from __future__ import annotations

import json
from typing import Any

from fleet.broker.sqs.call import Call
from fleet.broker.sqs.catalogue import Queue
from fleet.broker.sqs.verbs import Verbs
from fleet.state.connect import Client
from fleet.state.keys import OwnQueueKeys
from tests.state.stage import NOON_MS


class _NobodyCarries(Verbs):
    """Dead letters are brought when a test says so."""

    def _on_moved(self, queue: Queue) -> None:
        self.upkeep.hear(queue.name)


class SqsDoor:
    def __init__(self, stage: SqsStage, purge_interval_s: float) -> None:
        self._stage = stage
        self.verbs = _NobodyCarries(stage.client, purge_interval_s=purge_interval_s, now_ms=lambda: str(stage.now_ms))

    async def ask(self, verb: str, queue: str = "", **params: Any) -> Any:
        call = Call(verb=verb, params=params, base_url="http://localhost", queue_name=queue)
        return await self.verbs.table[verb](call)

    async def create(self, name: str, **attributes: str) -> None:
        fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
        await self.ask("CreateQueue", QueueName=name, Attributes=fifo | attributes)

    async def tidy(self) -> None:
        """What grows old is looked at within a minute."""
        await self.verbs.upkeep.each_second()
        self._stage.advance(60_000)
        await self.verbs.upkeep.each_second()

    async def send(self, queue: str, body: str, group: str = "g") -> dict[str, Any]:
        ids = {"MessageGroupId": group, "MessageDeduplicationId": body} if queue.endswith(".fifo") else {}
        found: dict[str, Any] = await self.ask("SendMessage", queue, MessageBody=body, **ids)
        return found

    async def receive(self, queue: str, most: int = 10, wait_s: int = 0) -> list[dict[str, Any]]:
        found = await self.ask("ReceiveMessage", queue, MaxNumberOfMessages=most, WaitTimeSeconds=wait_s)
        return list(found.get("Messages", []))

    async def bodies(self, queue: str, most: int = 10) -> list[str]:
        return [one["Body"] for one in await self.receive(queue, most)]

    async def have_dead_letters(self, queue: str, *bodies: str) -> None:
        """Sent, and received once too often: they wait to be brought."""
        for body in bodies:
            await self.send(queue, body)
        await self.receive(queue)
        self._stage.advance(60_000)
        await self.receive(queue)


class SqsStage:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.now_ms = NOON_MS
        self._doors: list[SqsDoor] = []

    def door(self, purge_interval_s: float = 0) -> SqsDoor:
        door = SqsDoor(self, purge_interval_s)
        self._doors.append(door)
        return door

    async def set_clocks(self, door: SqsDoor, name: str) -> None:
        """What a queue is not asked for by a client goes by the time of the last call that was."""

        async def set_clock(queue: Queue) -> None:
            for engine in queue.engines:
                engine.now_ms = str(self.now_ms)

        await door.verbs.queues.use(name, set_clock)

    def advance(self, ms: int) -> None:
        self.now_ms += ms

    async def keys(self, queue: str) -> list[str]:
        prefix = f"{{b:sqs/{queue}"
        return sorted([key async for key in self.client.scan_iter() if key.startswith(prefix)])

    def state_of(self, queue: str, partition: int = 0) -> str:
        return OwnQueueKeys(f"sqs/{queue}", partition).state

    async def aclose(self) -> None:
        for door in self._doors:
            await door.verbs.aclose()


def arn(queue: str) -> str:
    return f"arn:aws:sqs:us-east-1:000000000000:{queue}"


def redrive(target: str, most: int = 1) -> str:
    return json.dumps({"deadLetterTargetArn": arn(target), "maxReceiveCount": most})
