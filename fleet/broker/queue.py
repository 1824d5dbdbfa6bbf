"""`MessageQueue`: topics and subscriptions for programs that are not asynchronous, over a loop on its own thread."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AsyncExitStack
from typing import Any, ClassVar, Self, TypeVar

from fleet.broker.core import Broker
from fleet.broker.errors import FailedPrecondition
from fleet.broker.message import Message, PulledMessage
from fleet.broker.options import SubscriptionOptions
from fleet.broker.records import Subscription, Topic
from fleet.broker.upkeep import Upkeep
from fleet.waiting import end

T = TypeVar("T")
_DEFAULT_URL = "redis://127.0.0.1:6379/0"


class MessageQueue:
    """Topics, subscriptions and their messages. What one process does, every other sees: all of it is in Redis.

        queue = MessageQueue.get_instance()
        queue.register_topic("orders")
        queue.register_subscription("billing", "orders", ack_deadline_seconds=30)
        queue.publish("orders", [{"data": b"one"}])
        for message in queue.pull("billing", 10):
            queue.ack(message.ack_id)

    Any number of threads may share one. Errors are `fleet.broker.errors.BrokerError`, with a `code` and a `message`.
    """

    _instance: ClassVar[MessageQueue | None] = None
    _instance_lock = threading.Lock()

    def __init__(self, *, url: str = "") -> None:
        """`url`: of Redis, else FLEET_REDIS_URL, else the Redis of this machine. It is connected to here."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fleet-broker", daemon=True)
        self._thread.start()
        self._closing = threading.Lock()
        self._stack = AsyncExitStack()
        self._calls: set[asyncio.Task[Any]] = set()
        """Of other threads, under way."""
        try:
            self._broker = self._run(self._open(url or os.environ.get("FLEET_REDIS_URL") or _DEFAULT_URL))
        except BaseException:
            self._end_loop()
            raise
        atexit.register(self.close)

    @classmethod
    def get_instance(cls) -> MessageQueue:
        """The one of this process, made when it is first asked for."""
        with cls._instance_lock:
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    def close(self) -> None:
        """Disconnect. What was pulled and not acked shows again after its deadline."""
        with self._closing:
            if self._loop.is_closed():
                return
            self._run(self._end_calls())
            self._run(self._stack.aclose())
            self._end_loop()
        atexit.unregister(self.close)
        with self._instance_lock:
            if MessageQueue._instance is self:
                MessageQueue._instance = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Topics -------------------------------------------------------------------------------------------

    def register_topic(self, name: str) -> None:
        """Make a topic; it is none the worse for being there already."""
        self._run(self._broker.register_topic(name))

    def unregister_topic(self, name: str) -> None:
        """Delete a topic and its messages. Its subscriptions stay, and give nothing any more."""
        self._run(self._broker.unregister_topic(name))

    def topic_exists(self, name: str) -> bool:
        return self.get_topic(name) is not None

    def get_topic(self, name: str) -> Topic | None:
        return self._run(self._broker.get_topic(name))

    def get_all_topics(self) -> list[Topic]:
        return self._run(self._broker.get_all_topics())

    # Subscriptions ------------------------------------------------------------------------------------

    def register_subscription(
        self, name: str, topic: str, given: Mapping[str, object] | SubscriptionOptions | None = None, /, **options: Any
    ) -> None:
        """Subscribe to a topic: it gets what is published from now on. Options as a mapping, as keywords, or both.

        queue.register_subscription("audit", "orders", {"message_ordering": True}, ack_deadline_seconds=30)
        """
        self._run(self._broker.register_subscription(name, topic, SubscriptionOptions.read(given, **options)))

    def unregister_subscription(self, name: str) -> None:
        """Delete a subscription and its messages."""
        self._run(self._broker.unregister_subscription(name))

    def subscription_exists(self, name: str) -> bool:
        return self.get_subscription(name) is not None

    def get_subscription(self, name: str) -> Subscription | None:
        return self._run(self._broker.get_subscription(name))

    def get_subscriptions_for_topic(self, topic: str) -> list[Subscription]:
        return self._run(self._broker.get_subscriptions_for_topic(topic))

    def get_all_subscriptions(self) -> list[Subscription]:
        return self._run(self._broker.get_all_subscriptions())

    # Messages -----------------------------------------------------------------------------------------

    def publish(self, topic: str, messages: Sequence[Message | Mapping[str, object]]) -> list[str]:
        """All of them or none; their ids, in order."""
        return self._run(self._broker.publish(topic, messages))

    def pull(self, subscription: str, max_messages: int, *, wait_seconds: float = 0) -> list[PulledMessage]:
        """What may be shown now, the oldest first; each is this caller's until its deadline.

        `wait_seconds`: if there is nothing now, wait for so long until there is; at most 600.
        """
        return self._run(self._broker.pull(subscription, max_messages, wait_s=wait_seconds))

    def ack(self, ack_id: str) -> None:
        """It is done with: delete it from its subscription."""
        self._run(self._broker.ack(ack_id))

    def nack(self, ack_id: str) -> None:
        """It could not be done: show it again, after the backoff of its subscription."""
        self._run(self._broker.nack(ack_id))

    def modify_ack_deadline(self, ack_id: str, seconds: float) -> None:
        """Its deadline is `seconds` from now; 0 is a nack."""
        self._run(self._broker.modify_ack_deadline(ack_id, seconds))

    def seek(self, subscription: str, time: float) -> int:
        """Skip what was published before `time`, in seconds since 1970. Returns how many messages that were."""
        return self._run(self._broker.seek(subscription, time))

    # ---------------------------------------------------------------------------------------------------

    async def _open(self, url: str) -> Broker:
        broker = await self._stack.enter_async_context(Broker.connected(url))
        await self._stack.enter_async_context(Upkeep(broker).running())
        return broker

    def _run(self, job: Coroutine[Any, Any, T]) -> T:
        if not self._thread.is_alive():
            job.close()
            raise FailedPrecondition("the message queue is closed")
        call = asyncio.run_coroutine_threadsafe(self._called(job), self._loop)
        try:
            return call.result()
        except CancelledError as error:
            raise FailedPrecondition("the message queue was closed") from error
        except BaseException:
            # Somebody interrupts this thread: what it waits for must not go on without it.
            call.cancel()
            raise

    async def _called(self, job: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await job
        finally:
            self._calls.discard(task)

    async def _end_calls(self) -> None:
        await end(self._calls - {asyncio.current_task()})

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
