"""StreamingPull: messages as they come, for as long as the client keeps its stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from fleet.broker.core import MOST_WAIT_S, Broker
from fleet.broker.errors import InvalidArgument, SubscriptionNotFound, Unavailable
from fleet.broker.message import PulledMessage
from fleet.broker.pubsub.messages import answers, received
from fleet.broker.pubsub.names import subscription_of
from fleet.broker.pubsub.outstanding import Budget, Outstanding
from fleet.broker.pubsub.settle import Settler
from fleet.broker.pubsub.wire import StreamingPullResponse
from fleet.broker.pull import check_ack_deadline
from fleet.waiting import end

Write = Callable[[Any], Awaitable[None]]


class Streams:
    """All of the door. `over`: it closes."""

    def __init__(self, broker: Broker, outstanding: Outstanding, settler: Settler, over: asyncio.Event) -> None:
        self._broker = broker
        self._outstanding = outstanding
        self._settler = settler
        self._over = over

    async def streaming_pull(self, requests: AsyncIterator[Any], write: Write) -> None:
        first = await anext(requests, None)
        if first is None:
            return
        name = subscription_of(first.subscription).name
        found = await self._broker.get_subscription(name)
        if found is None:
            raise SubscriptionNotFound(name)
        deadline_s = check_ack_deadline(first.stream_ack_deadline_seconds)
        loop = asyncio.get_running_loop()
        with self._outstanding.budget(
            messages=first.max_outstanding_messages, size=first.max_outstanding_bytes, time_s=loop.time
        ) as budget:
            stream = Stream(
                name,
                broker=self._broker,
                settler=self._settler,
                budget=budget,
                write=write,
                deadline_s=deadline_s,
                is_ordered=found.options.message_ordering,
            )
            await self._run(stream.hear(first, requests), stream.give())

    async def _run(self, hear: Coroutine[Any, Any, None], give: Coroutine[Any, Any, None]) -> None:
        """Until the client ends it, one of the two fails, or the door closes."""
        loop = asyncio.get_running_loop()
        hearing, giving, closing = (loop.create_task(job) for job in (hear, give, _of(self._over)))
        try:
            done, _ = await asyncio.wait((hearing, giving, closing), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if hearing not in done:
                # A client takes this for a reason to open its stream again, at whoever listens here then.
                raise Unavailable("this door closes")
        finally:
            await end((hearing, giving, closing))


async def _of(event: asyncio.Event) -> None:
    await event.wait()


class Stream:
    """One of them, of one subscription."""

    def __init__(
        self,
        subscription: str,
        *,
        broker: Broker,
        settler: Settler,
        budget: Budget,
        write: Write,
        deadline_s: float,
        is_ordered: bool,
    ) -> None:
        self._subscription = subscription
        self._broker = broker
        self._settler = settler
        self._budget = budget
        self._write = write
        self._deadline_s = deadline_s
        self._is_ordered = is_ordered

    async def hear(self, asked: Any, requests: AsyncIterator[Any]) -> None:
        """What the client says, until it says that this was all. An empty request keeps the stream alive."""
        while True:
            await self._settle(asked)
            asked = await anext(requests, None)
            if asked is None:
                return
            if asked.subscription:
                raise InvalidArgument("subscription belongs into the first request of a stream alone")
            if asked.stream_ack_deadline_seconds:
                self._deadline_s = check_ack_deadline(asked.stream_ack_deadline_seconds)

    async def _settle(self, asked: Any) -> None:
        if len(asked.modify_deadline_ack_ids) != len(asked.modify_deadline_seconds):
            raise InvalidArgument("modify_deadline_seconds and modify_deadline_ack_ids differ in length")
        if asked.ack_ids:
            await self._settler.acknowledge(self._subscription, asked.ack_ids)
        if asked.modify_deadline_ack_ids:
            deadlines = zip(asked.modify_deadline_ack_ids, asked.modify_deadline_seconds, strict=True)
            await self._settler.modify(self._subscription, list(deadlines))

    async def give(self) -> None:
        while True:
            room = await self._budget.has_room()
            deadline_s = self._deadline_s
            messages = await self._broker.pull(self._subscription, room, wait_s=MOST_WAIT_S, ack_deadline_s=deadline_s)
            self._budget.put_on(messages, deadline_s)
            waiting = deque(answers(messages))
            try:
                while waiting:
                    # Off the list before it is written: if that fails, the client may have got it.
                    await self._write(self._answer(waiting.popleft()))
            finally:
                self._broker.give_back(self._subscription, [one for answer in waiting for one in answer])

    def _answer(self, messages: list[PulledMessage]) -> Any:
        properties = StreamingPullResponse.SubscriptionProperties(message_ordering_enabled=self._is_ordered)
        return StreamingPullResponse(
            received_messages=[received(one) for one in messages], subscription_properties=properties
        )
