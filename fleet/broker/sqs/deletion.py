"""DeleteQueue: the queue leaves the catalogue, which notes what there is to clear. Another door may clear it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from fleet.broker.sqs import errors
from fleet.broker.sqs.call import Call
from fleet.broker.sqs.catalogue import Queue, Queues, engine_of
from fleet.broker.sqs.records import QueueRecord
from fleet.broker.sqs.tasks import Tasks, read, written
from fleet.state.catalogue import Change
from fleet.state.engine import Stale

FORGOTTEN_AFTER_MS = 24 * 60 * 60 * 1000
_TRIES = 20


class Deletion:
    def __init__(self, queues: Queues, carry: Callable[[Queue], Awaitable[object]]) -> None:
        self._queues = queues
        self._carry = carry

    async def delete_queue(self, call: Call) -> None:
        name = call.queue_name
        catalogue = self._queues.catalogue
        for _ in range(_TRIES):
            seen, record = await self._queues.find(name)
            # What is on its way elsewhere has left already, and would go with the queue.
            await self._queues.use(name, self._carry)
            before = await catalogue.get("tasks", name)
            gone = msgspec.structs.replace(record, incarnation=record.incarnation + 1)
            after = Tasks(deleted=(*read(before).deleted, gone))
            changes = Change("queues", name, seen, ""), Change("tasks", name, before, written(after))
            if await catalogue.change(*changes):
                break
        else:
            raise errors.service_unavailable()
        self._queues.forget(name)
        await self.finish(name)

    async def finish(self, name: str) -> None:
        catalogue = self._queues.catalogue
        for _ in range(_TRIES):
            before = await catalogue.get("tasks", name)
            tasks = read(before)
            for gone in tasks.deleted:
                await self._clear(name, gone)
            after = msgspec.structs.replace(tasks, deleted=())
            if after == tasks or await catalogue.change(Change("tasks", name, before, written(after))):
                return
        raise errors.service_unavailable()

    async def _clear(self, name: str, gone: QueueRecord) -> None:
        for partition in range(gone.attributes.partitions):
            engine = engine_of(self._queues.client, name, gone, partition)
            try:
                await engine.establish(keep_ms=FORGOTTEN_AFTER_MS)
            except Stale:
                continue  # there is another of that name, which has thrown away what was here
            await engine.forget_outboxes()
            await engine.clear()
