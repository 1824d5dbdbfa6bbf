"""StartMessageMoveTask, ListMessageMoveTasks, CancelMessageMoveTask: what a dead-letter queue holds goes back.

A task stands in Redis. Whoever has the lease of the broker's upkeep carries it on, a second's part at a time, so one
that is killed is replaced.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable
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
_A_STEP = 5_000
"""What a task without a rate moves of it in a second: others have their turn, and the lease is renewed."""
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

    async def forget(self, source: str) -> None:
        """The queue is gone: one of that name that comes later has had none."""
        await self._change(source, lambda tasks: msgspec.structs.replace(tasks, latest=()))

    # The mover ----------------------------------------------------------------------------------------

    async def go_on(self, source: str, tasks: Tasks) -> bool:
        """A second's part of the tasks that run. Returns whether there is more to do."""
        return any([await self._go_on(source, task) for task in tasks.latest if task.status in (RUNNING, CANCELLING)])

    async def _go_on(self, source: str, task: Task) -> bool:
        if task.status == CANCELLING:
            return await self._save(source, task, status=CANCELLED)
        try:
            moved, is_over, gone = await self._queues.use(source, lambda queue: self._move(queue, task))
        except errors.SqsError as error:
            if await self._queues.seen(source) is None:
                await self.forget(source)
                return False
            # A door that cannot do it now goes on with the next second.
            return error.status >= 500 or await self._save(source, task, status=FAILED, failure=error.code)
        except DataLoss as error:
            log.warning("the task that moves messages of queue %s has failed: %s", source, error)
            return await self._save(source, task, status=FAILED, failure="InternalFailure")
        moved += task.moved
        if not is_over:
            return await self._save(source, task, moved=moved)
        if gone:
            log.warning("messages of queue %s stay: they came from queues that are gone", source)
            return await self._save(source, task, moved=moved, status=FAILED, failure=errors.no_such_queue().code)
        return await self._save(source, task, moved=moved, status=COMPLETED)

    async def _move(self, queue: Queue, task: Task) -> tuple[int, bool, bool]:
        """How many are moved, whether that was all that can be, and whether some stay as their queue is gone."""
        known = _Known(self._queues)
        if task.target and not await known.learn([PREFIX + task.target]):
            raise errors.no_such_queue()
        moved = 0
        for engine in queue.engines:
            place = 0
            while True:
                most = min(_AT_ONCE, (task.a_second or _A_STEP) - moved)
                if most <= 0:
                    return moved, False, False
                target = PREFIX + task.target if task.target else ""
                count, behind, unknown = await engine.move(most, target, place, sorted(known.there))
                moved += count
                if count:
                    await self._courier.carry(queue)
                elif not await known.learn(unknown):
                    if behind is None:
                        break
                    place = behind  # what has no place to go back to stays
        return moved, True, bool(known.gone)

    # ---------------------------------------------------------------------------------------------------

    async def _save(self, source: str, task: Task, **changes: Any) -> bool:
        """Returns whether it goes on."""
        after = msgspec.structs.replace(task, **changes)

        def saved(tasks: Tasks) -> Tasks:
            now = next((one for one in tasks.latest if one.handle == task.handle), None)
            if now is not None and now.status == CANCELLING and after.status == RUNNING:
                return _with(tasks, msgspec.structs.replace(after, status=CANCELLING))
            return _with(tasks, after)

        if after != task:
            await self._change(source, saved)
        return after.status == RUNNING

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


class _Known:
    """Which queues are there, looked up once in a part of a task."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self.there: set[str] = set()
        self.gone: set[str] = set()

    async def learn(self, targets: Iterable[str]) -> bool:
        """Whether any of these is there that was not known to be."""
        new = set(targets) - self.there - self.gone
        found = {target for target in new if await self._queues.seen(target.removeprefix(PREFIX)) is not None}
        self.there |= found
        self.gone |= new - found
        return bool(found)


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
