"""What one door does for all: dead letters that nobody brought, tasks that move messages, and what grows old.

A step looks at what is due and at no more: however many queues there are, an idle one costs a look a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from zlib import crc32

from fleet.broker.by_lease import ByLease
from fleet.broker.sqs import tasks
from fleet.broker.sqs.catalogue import Queue, Queues
from fleet.broker.sqs.courier import Courier
from fleet.broker.sqs.deletion import Deletion
from fleet.broker.sqs.errors import SqsError
from fleet.broker.sqs.move_tasks import TaskVerbs
from fleet.errors import FleetError, StateUnavailable
from fleet.state.due import Due
from fleet.state.keys import BrokerKeys, queue_of_prefix

log = logging.getLogger("fleet.sqs")

TIDY_EVERY_MS = 60_000
RETRY_MS = 5_000
"""What could not be finished, as its target is gone or full, is tried again so often."""
_HELD_MS = 10_000
"""What was taken by one who died comes due again. Longer than a step."""
_STEP_S = 5.0
"""A step ends after that, so that the lease is renewed in time; what it has not come to is the next one's."""
_MOST = 500
_ENLISTED = 200
"""Names of the catalogue that a step looks through for queues that are tidied by nobody yet."""
_MOST_HEARD = 10_000


class Upkeep:
    def __init__(self, queues: Queues, courier: Courier, movers: TaskVerbs, deletion: Deletion) -> None:
        self._queues = queues
        self._courier = courier
        self._movers = movers
        self._deletion = deletion
        self._pending = Due(queues.client, BrokerKeys.sqs_due)
        self._tidied = Due(queues.client, BrokerKeys.sqs_tidy)
        self._said: dict[str, str] = {}
        """Why a queue is left for later, as was said once."""
        self._heard: dict[str, None] = {}
        """Queues of which something has moved since we looked. Every door hears of it, and whoever has the lease by the
        next second looks whether it was brought."""
        self._enlisted = 0
        """How far the catalogue was looked through, as Redis counts."""

    def by_lease(self) -> ByLease:
        return ByLease(
            self._queues.client,
            BrokerKeys.sqs_sweeper,
            each_second=self.each_second,
            log=log,
            what="SQS door",
        )

    def on_moved(self, prefix: str) -> None:
        """A queue says that something waits in an outbox of its."""
        if name := queue_of_prefix(prefix):
            self.hear(name)

    def hear(self, name: str) -> None:
        self._heard[name] = None
        if len(self._heard) > _MOST_HEARD:
            # The tidying finds it within a minute.
            del self._heard[next(iter(self._heard))]

    async def each_second(self) -> None:
        until_s = asyncio.get_running_loop().time() + _STEP_S
        now_ms = self._queues.now_ms()
        held_ms, furthest_ms = now_ms + _HELD_MS, now_ms + 2 * TIDY_EVERY_MS
        await self._enlist(now_ms)
        pending = await self._pending.take(now_ms, most=_MOST, again_ms=held_ms, furthest_ms=furthest_ms)
        heard = [name for name in list(self._heard)[:_MOST] if name not in pending]
        for name in (*pending, *heard):
            self._heard.pop(name, None)
        left = await self._each([*pending, *heard], self._work, until_s)
        await self._pending.put(dict.fromkeys(left, now_ms))
        if pending:
            await self._pending.done(held_ms)
        again_ms = now_ms + TIDY_EVERY_MS
        tidied = await self._tidied.take(now_ms, most=_MOST, again_ms=again_ms, furthest_ms=furthest_ms)
        left = await self._each(tidied, self._tidy, until_s)
        await self._tidied.put(dict.fromkeys(left, now_ms))

    async def carry_soon(self, name: str) -> None:
        """Somebody saw that something moves. What cannot be brought now is found again within seconds."""
        try:
            await self._guarded(name, lambda: self._queues.use(name, self._courier.carry))
        except FleetError as error:
            log.info("dead letters of queue %s are left for later: %s", name, error)

    async def _each(self, names: Sequence[str], job: Callable[[str], Awaitable[None]], until_s: float) -> Sequence[str]:
        """Returns those that there was no time for."""
        for place, name in enumerate(names):
            if asyncio.get_running_loop().time() >= until_s:
                return names[place:]
            await self._guarded(name, lambda name=name: job(name))  # type: ignore[misc]
        return ()

    async def _enlist(self, now_ms: int) -> None:
        """Every queue has its minute, whoever made it and whatever became of him then."""
        self._enlisted, names = await self._queues.catalogue.some("queues", self._enlisted, count=_ENLISTED)
        # Spread over the minute, or all that were made at once would fall due at once.
        at_ms = {name: now_ms + crc32(name.encode()) % TIDY_EVERY_MS for name in names}
        await self._tidied.put(at_ms, only_new=True)

    async def _work(self, name: str) -> None:
        """What is pending of a queue: a deletion, a purge, tasks, messages on their way to another."""
        pending = tasks.read(await self._queues.catalogue.get("tasks", name))
        if pending.deleted:
            await self._deletion.finish(name)
        goes_on = await self._movers.go_on(name, pending)
        if await self._queues.seen(name) is None:
            return
        is_left = await self._queues.use(name, self._finish)
        if goes_on or is_left:
            after_ms = 0 if goes_on else RETRY_MS
            await self._pending.put({name: self._queues.now_ms() + after_ms})

    async def _finish(self, queue: Queue) -> bool:
        """Whether something stays in an outbox."""
        await queue.finish_purge()
        await self._courier.carry(queue)
        return any([await engine.targets() for engine in queue.engines])

    async def _tidy(self, name: str) -> None:
        seen = await self._queues.seen(name)
        if seen is None:
            await self._tidied.forget([name])
            return
        self._queues.learn(name, seen[1])
        await self._queues.use(name, self._tidy_queue)

    async def _tidy_queue(self, queue: Queue) -> None:
        for engine in queue.engines:
            await engine.tidy(queue.rules(0))
            await engine.clear()
        # Whatever its policy is by now: a task moves messages of a queue that has none, and a policy may be taken away.
        await self._courier.carry(queue)

    async def _guarded(self, name: str, job: Callable[[], Awaitable[object]]) -> None:
        try:
            await job()
            self._said.pop(name, None)
        except StateUnavailable:
            raise
        except (SqsError, FleetError) as error:
            # One queue that cannot be read keeps nobody from the others.
            if self._said.get(name) != str(error):
                log.warning("queue %s is left for later: %s", name, error)
            self._said[name] = str(error)
            await self._pending.put({name: self._queues.now_ms() + RETRY_MS})
