"""What one door does for all: dead letters that nobody brought, tasks that move messages, and what grows old."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from fleet.broker.by_lease import ByLease
from fleet.broker.sqs.catalogue import Queue, Queues
from fleet.broker.sqs.courier import Courier
from fleet.broker.sqs.deletion import Deletion
from fleet.broker.sqs.errors import SqsError
from fleet.broker.sqs.move_tasks import TaskVerbs
from fleet.errors import FleetError, StateUnavailable
from fleet.state.keys import BrokerKeys

log = logging.getLogger("fleet.sqs")

_QUEUES_A_SECOND = 1000


class Upkeep:
    def __init__(self, queues: Queues, courier: Courier, tasks: TaskVerbs, deletion: Deletion) -> None:
        self._queues = queues
        self._courier = courier
        self._tasks = tasks
        self._deletion = deletion
        self._said: dict[str, str] = {}
        """Why a queue is left for later, as was said once."""
        self._left: list[str] = []
        """Queues whose messages move, as dead letters or by a task, that are not looked at yet in this round."""

    def by_lease(self) -> ByLease:
        return ByLease(
            self._queues.client,
            BrokerKeys.sqs_sweeper,
            each_second=self.each_second,
            each_minute=self.each_minute,
            log=log,
            what="SQS door",
        )

    async def each_second(self) -> None:
        await self._deletion.work()
        await self._tasks.work()
        if not self._left:
            records = await self._queues.all()
            found = {name for name, record in records.items() if record.attributes.redrive is not None}
            # What a task moved waits in the dead-letter queue where its source is not there.
            found |= records.keys() & await self._tasks.sources()
            self._left = sorted(found)
        part, self._left = self._left[:_QUEUES_A_SECOND], self._left[_QUEUES_A_SECOND:]
        for name in part:
            await self._use(name, self._courier.carry)

    async def each_minute(self) -> None:
        for name, record in (await self._queues.all()).items():
            self._queues.learn(name, record)
            await self._use(name, self._tidy)

    async def carry_soon(self, name: str) -> None:
        """Somebody saw that something moves. What cannot be brought now is found again within seconds."""
        try:
            await self._use(name, self._courier.carry)
        except FleetError as error:
            log.info("dead letters of queue %s are left for later: %s", name, error)

    async def _tidy(self, queue: Queue) -> None:
        for engine in queue.engines:
            await engine.tidy(queue.rules(0))
            await engine.clear()
        # Whatever its policy is by now: a task moves messages of a queue that has none, and a policy may be taken away.
        await self._courier.carry(queue)

    async def _use(self, name: str, job: Callable[[Queue], Awaitable[object]]) -> None:
        try:
            await self._queues.use(name, job)
            self._said.pop(name, None)
        except StateUnavailable:
            raise
        except (SqsError, FleetError) as error:
            # One queue that cannot be read keeps nobody from the others.
            if self._said.get(name) != str(error):
                log.warning("queue %s is left for later: %s", name, error)
            self._said[name] = str(error)
