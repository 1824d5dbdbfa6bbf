"""StartMessageMoveTask, ListMessageMoveTasks, CancelMessageMoveTask: what a dead-letter queue holds goes back.

A task stands in Redis. Whoever has the lease of the broker's upkeep carries it on, a second's part at a time, so one
that is killed is replaced.
"""

from __future__ import annotations

import logging
import secrets
import time
from typing import Any

import msgspec

from fleet.broker.errors import DataLoss
from fleet.broker.sqs import errors, names, ranges
from fleet.broker.sqs.call import Call
from fleet.broker.sqs.catalogue import PREFIX, Queue, Queues
from fleet.broker.sqs.courier import Courier
from fleet.broker.sqs.tasks import CANCELLED, CANCELLING, COMPLETED, FAILED, RUNNING, Task, Tasks, read, written
from fleet.state.catalogue import Change

log = logging.getLogger("fleet.sqs")

_KEPT = 10
_AT_ONCE = 500
_TRIES = 20


class TaskVerbs:
    def __init__(self, queues: Queues, courier: Courier, *, region: str) -> None:
        self._queues = queues
        self._courier = courier
        self._region = region

    async def start_message_move_task(self, call: Call) -> dict[str, Any]:
        params = call.params
        source = await self._named(params["SourceArn"], "SourceArn")
        given = params.get("DestinationArn")
        target = await self._named(given, "DestinationArn") if given else ""
        a_second = ranges.moved_a_second(params) or 0
        if not await self._is_dead_letter_queue(source):
            raise errors.not_a_dead_letter_queue()
        to_move = await self._queues.use(source, _visible)
        task = Task(
            handle=secrets.token_urlsafe(24),
            status=RUNNING,
            started_ms=time.time_ns() // 1_000_000,
            to_move=to_move,
            target=target,
            a_second=a_second,
        )

        def started(tasks: Tasks) -> Tasks:
            if any(one.status in (RUNNING, CANCELLING) for one in tasks.latest):
                raise errors.move_task_running()
            return msgspec.structs.replace(tasks, latest=(task, *tasks.latest)[:_KEPT])

        await self._change(source, started)
        return {"TaskHandle": written_handle(source, task.handle)}

    async def list_message_move_tasks(self, call: Call) -> dict[str, Any]:
        source = await self._named(call.params["SourceArn"], "SourceArn")
        most = ranges.tasks(call.params)
        tasks = (await self._tasks(source))[1].latest[:most]
        return {"Results": [self._shown(source, task) for task in tasks]}

    async def cancel_message_move_task(self, call: Call) -> dict[str, Any]:
        source, handle = read_handle(call.params["TaskHandle"])
        moved = 0

        def cancelled(tasks: Tasks) -> Tasks:
            nonlocal moved
            found = next((task for task in tasks.latest if task.handle == handle), None)
            if found is None:
                raise errors.no_such_task()
            if found.status != RUNNING:
                raise errors.unsupported("Only active tasks can be cancelled.")
            moved = found.moved
            return _with(tasks, msgspec.structs.replace(found, status=CANCELLING))

        await self._change(source, cancelled)
        return {"ApproximateNumberOfMessagesMoved": moved}

    def _shown(self, source: str, task: Task) -> dict[str, Any]:
        found: dict[str, Any] = {
            "Status": task.status,
            "SourceArn": names.arn(self._region, source),
            "ApproximateNumberOfMessagesMoved": task.moved,
            "ApproximateNumberOfMessagesToMove": task.to_move,
            "StartedTimestamp": task.started_ms,
        }
        if task.status == RUNNING:
            found["TaskHandle"] = written_handle(source, task.handle)
        if task.target:
            found["DestinationArn"] = names.arn(self._region, task.target)
        if task.a_second:
            found["MaxNumberOfMessagesPerSecond"] = task.a_second
        if task.failure:
            found["FailureReason"] = task.failure
        return found

    async def sources(self) -> set[str]:
        """Queues that had a task."""
        return {source async for source, _ in self._queues.catalogue.all("tasks")}

    async def forget(self, source: str) -> None:
        """The queue is gone: one of that name that comes later has had none."""
        await self._change(source, lambda tasks: msgspec.structs.replace(tasks, latest=()))

    # The mover ----------------------------------------------------------------------------------------

    async def work(self) -> None:
        """A second's part of every task that runs."""
        async for source, text in self._queues.catalogue.all("tasks"):
            for task in read(text).latest:
                if task.status in (RUNNING, CANCELLING):
                    await self._go_on(source, task)

    async def _go_on(self, source: str, task: Task) -> None:
        if task.status == CANCELLING:
            await self._save(source, msgspec.structs.replace(task, status=CANCELLED))
            return
        try:
            moved, is_over = await self._queues.use(source, lambda queue: self._move(queue, task))
            if task.target:
                await self._queues.find(task.target)
        except errors.SqsError as error:
            if await self._queues.seen(source) is None:
                await self.forget(source)
            elif error.status < 500:  # else it goes on with the next second
                await self._save(source, msgspec.structs.replace(task, status=FAILED, failure=error.type))
            return
        except DataLoss as error:
            log.warning("the task that moves messages of queue %s has failed: %s", source, error)
            await self._save(source, msgspec.structs.replace(task, status=FAILED, failure="InternalFailure"))
            return
        after = msgspec.structs.replace(task, moved=task.moved + moved, status=COMPLETED if is_over else task.status)
        if after != task:
            await self._save(source, after)

    async def _move(self, queue: Queue, task: Task) -> tuple[int, bool]:
        moved, is_over = 0, True
        for engine in queue.engines:
            place = 0
            while True:
                most = min(_AT_ONCE, task.a_second - moved) if task.a_second else _AT_ONCE
                if most <= 0:
                    return moved, False
                count, at_end = await engine.move(most, PREFIX + task.target if task.target else "", place)
                moved += count
                await self._courier.carry(queue)
                if at_end and not count:
                    break
                if not count:
                    place += most  # what has no place to go back to stays
        return moved, is_over

    # ---------------------------------------------------------------------------------------------------

    async def _save(self, source: str, task: Task) -> None:
        def saved(tasks: Tasks) -> Tasks:
            now = next((one for one in tasks.latest if one.handle == task.handle), None)
            if now is not None and now.status == CANCELLING and task.status == RUNNING:
                return _with(tasks, msgspec.structs.replace(task, status=CANCELLING))
            return _with(tasks, task)

        await self._change(source, saved)

    async def _change(self, source: str, change: Any) -> None:
        for _ in range(_TRIES):
            text, tasks = await self._tasks(source)
            changed: Tasks = change(tasks)
            now = Change("tasks", source, text, written(changed))
            if changed == tasks or await self._queues.catalogue.change(now):
                return
        raise errors.service_unavailable()

    async def _tasks(self, source: str) -> tuple[str, Tasks]:
        text = await self._queues.catalogue.get("tasks", source)
        return text, read(text)

    async def _named(self, arn: str, parameter: str) -> str:
        name = names.name_of_arn(arn)
        if not name:
            raise errors.invalid_arn(parameter)
        if await self._queues.seen(name) is None:
            raise errors.no_such_resource(parameter)
        return name

    async def _is_dead_letter_queue(self, name: str) -> bool:
        policies = (record.attributes.redrive for record in (await self._queues.all()).values())
        return any(policy is not None and policy.target == name for policy in policies)


def written_handle(source: str, handle: str) -> str:
    return f"{handle}.{source}"


def read_handle(text: str) -> tuple[str, str]:
    handle, _, source = text.partition(".")
    if not handle or not names.is_name(source):
        raise errors.invalid_task_handle()
    return source, handle


def _with(tasks: Tasks, task: Task) -> Tasks:
    latest = tuple(task if one.handle == task.handle else one for one in tasks.latest)
    return msgspec.structs.replace(tasks, latest=latest)


async def _visible(queue: Queue) -> int:
    found = [await engine.depths(look=1) for engine in queue.engines]
    return sum(one.messages - one.hidden for one in found)
