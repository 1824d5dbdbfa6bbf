"""Every verb of SQS by its name, over queues in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fleet.broker.sqs import conclude, send
from fleet.broker.sqs.call import Call
from fleet.broker.sqs.catalogue import Queue, Queues
from fleet.broker.sqs.counts import DoorCounts
from fleet.broker.sqs.courier import Courier
from fleet.broker.sqs.deletion import Deletion
from fleet.broker.sqs.door import Verb
from fleet.broker.sqs.move_tasks import TaskVerbs
from fleet.broker.sqs.queues import QueueVerbs
from fleet.broker.sqs.receive import receive_message
from fleet.broker.sqs.tags import TagVerbs
from fleet.broker.sqs.upkeep import Upkeep
from fleet.state.connect import Client
from fleet.waiting import end

OfQueue = Callable[[Queue, Call], Awaitable[dict[str, Any] | None]]


async def _always() -> bool:
    return True


class Verbs:
    """`now_ms` is for tests; empty means Redis TIME."""

    def __init__(
        self,
        client: Client,
        *,
        region: str = "us-east-1",
        purge_interval_s: float = 60.0,
        serves_partitions: Callable[[], Awaitable[bool]] = _always,
        now_ms: Callable[[], str] = lambda: "",
        counts: DoorCounts | None = None,
    ) -> None:
        self._region = region
        self.queues = Queues(client, now_ms, self._on_moved, counts)
        self.courier = Courier(self.queues)
        self.tasks = TaskVerbs(self.queues, self.courier, region=region)
        deletion = Deletion(self.queues, self.courier.carry)
        self.upkeep = Upkeep(self.queues, self.courier, self.tasks, deletion)
        self._carrying: dict[str, asyncio.Task[object]] = {}
        queues = QueueVerbs(
            self.queues,
            region=region,
            purge_interval_s=purge_interval_s,
            serves_partitions=serves_partitions,
        )
        tags = TagVerbs(self.queues, queues.update, region=region)
        self.table: Mapping[str, Verb] = {
            "CreateQueue": queues.create_queue,
            "GetQueueUrl": queues.get_queue_url,
            "ListQueues": queues.list_queues,
            "DeleteQueue": deletion.delete_queue,
            "PurgeQueue": queues.purge_queue,
            "GetQueueAttributes": queues.get_queue_attributes,
            "SetQueueAttributes": queues.set_queue_attributes,
            "ListDeadLetterSourceQueues": queues.list_dead_letter_source_queues,
            "TagQueue": tags.tag_queue,
            "UntagQueue": tags.untag_queue,
            "ListQueueTags": tags.list_queue_tags,
            "AddPermission": tags.add_permission,
            "RemovePermission": tags.remove_permission,
            "SendMessage": self._of(send.send_message),
            "SendMessageBatch": self._of(send.send_message_batch),
            "ReceiveMessage": self._receive,
            "DeleteMessage": self._of(conclude.delete_message),
            "DeleteMessageBatch": self._of(conclude.delete_message_batch),
            "ChangeMessageVisibility": self._of(conclude.change_message_visibility),
            "ChangeMessageVisibilityBatch": self._of(conclude.change_message_visibility_batch),
            "StartMessageMoveTask": self.tasks.start_message_move_task,
            "ListMessageMoveTasks": self.tasks.list_message_move_tasks,
            "CancelMessageMoveTask": self.tasks.cancel_message_move_task,
        }

    async def aclose(self) -> None:
        await end(self._carrying.values())

    def _of(self, verb: OfQueue) -> Verb:
        async def call_with_queue(call: Call) -> dict[str, Any] | None:
            return await self.queues.use(call.queue_name, lambda queue: verb(queue, call))

        return call_with_queue

    async def _receive(self, call: Call) -> dict[str, Any] | None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()

        async def receive(queue: Queue) -> dict[str, Any]:
            # A queue that changes under a receive that waits costs it nothing but a look.
            return await receive_message(queue, call, region=self._region, waited_s=loop.time() - began_s)

        return await self.queues.use(call.queue_name, receive)

    def _on_moved(self, queue: Queue) -> None:
        """Something waits in an outbox: bring it beside the calls."""
        self.upkeep.hear(queue.name)
        task = self._carrying.get(queue.name)
        if task is None or task.done():
            self._carrying[queue.name] = asyncio.get_running_loop().create_task(self.upkeep.carry_soon(queue.name))
