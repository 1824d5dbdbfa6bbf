"""Topics and subscriptions, asynchronously: what `MessageQueue`, the server and the doors are made of."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Self

from fleet.broker.acks import Showing
from fleet.broker.counts import told
from fleet.broker.courier import Courier
from fleet.broker.directory import Directory, Pulled
from fleet.broker.errors import (
    BrokerError,
    Exhausted,
    FailedPrecondition,
    InvalidArgument,
    SubscriptionNotFound,
    TopicNotFound,
    Unavailable,
    Unsure,
)
from fleet.broker.message import Message, PulledMessage, checked
from fleet.broker.names import check_subscription_name, check_topic_name
from fleet.broker.options import SubscriptionOptions
from fleet.broker.publish import Publisher, was_never_sent
from fleet.broker.pull import Choice, Pull, Puller, What, given_back, rules_within
from fleet.broker.push import BATCH, Push
from fleet.broker.records import Subscription, Topic, shown_subscription, shown_topic
from fleet.broker.register import Register
from fleet.broker.sweep import Sweeper
from fleet.broker.waits import Waits
from fleet.errors import StateError, StateFull, StateUnavailable
from fleet.metrics.counters import Counters
from fleet.state.connect import Client, connect
from fleet.state.engine import DONE, Depths

log = logging.getLogger("fleet.broker")

_DEPTHS_AT_ONCE = 20
MOST_WAIT_S = 600
"""For which a pull waits at most."""


class Broker:
    """`url`: of the Redis that `client` is connected to; a pull that waits needs it. `counters`: what is counted goes
    there, and whoever gives them tells them. `now_ms` is for tests; empty means Redis TIME."""

    def __init__(
        self,
        client: Client,
        *,
        url: str = "",
        counters: Counters | None = None,
        now_ms: Callable[[], str] = lambda: "",
    ) -> None:
        self.client = client
        self.counters = counters if counters is not None else Counters()
        self.directory = Directory(client, now_ms)
        self._register = Register(self.directory, lambda: int(now_ms() or time.time_ns() // 1_000_000))
        self._courier = Courier(self.directory, self.counters)
        self._publisher = Publisher(self.directory, self.counters)
        self._puller = Puller(self.directory, self._carry, self.counters)
        self._waits = Waits(client, url)
        self._giving_back: set[asyncio.Task[None]] = set()
        self.sweeper = Sweeper(self.directory, self._register, self._carry, self.counters)

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, url: str) -> AsyncIterator[Self]:
        with as_broker_errors():
            client = await connect(url)
        try:
            broker = cls(client, url=url)
            async with told(client, broker.counters):
                try:
                    yield broker
                finally:
                    await broker.close()
        finally:
            await client.aclose()

    async def close(self) -> None:
        """Nobody waits any more. The connection is its opener's to close."""
        await self._waits.close()
        while self._giving_back:
            await asyncio.wait(self._giving_back)

    # Topics -------------------------------------------------------------------------------------------

    async def register_topic(self, name: str) -> bool:
        """Returns whether it was made: it may have been there."""
        with as_broker_errors():
            return await self._register.add_topic(check_topic_name(name))

    async def unregister_topic(self, name: str) -> None:
        with as_broker_errors():
            await self._register.remove_topic(name)

    async def get_topic(self, name: str) -> Topic | None:
        with as_broker_errors():
            seen = await self.directory.topic(name)
        return shown_topic(name, seen.record) if seen else None

    async def get_all_topics(self) -> list[Topic]:
        with as_broker_errors():
            return [shown_topic(name, record) for name, record in (await self.directory.topics()).items()]

    # Subscriptions ------------------------------------------------------------------------------------

    async def register_subscription(self, name: str, topic: str, options: SubscriptionOptions) -> bool:
        """Returns whether it was made: the same may have been there."""
        with as_broker_errors():
            return await self._register.add_subscription(check_subscription_name(name), topic, options)

    async def unregister_subscription(self, name: str) -> None:
        with as_broker_errors():
            await self._register.remove_subscription(name)

    async def get_subscription(self, name: str) -> Subscription | None:
        with as_broker_errors():
            seen = await self.directory.subscription(name)
        return shown_subscription(name, seen.record) if seen else None

    async def get_subscriptions_for_topic(self, topic: str) -> list[Subscription]:
        with as_broker_errors():
            seen = await self.directory.topic(topic)
            if seen is None:
                raise TopicNotFound(topic)
            found = await self.directory.subscriptions_of(seen.record.subscriptions)
        return [shown_subscription(name, record) for name, record in found.items()]

    async def get_all_subscriptions(self) -> list[Subscription]:
        with as_broker_errors():
            found = await self.directory.subscriptions()
        return [shown_subscription(name, record) for name, record in found.items()]

    # Messages -----------------------------------------------------------------------------------------

    async def publish(self, topic: str, messages: Sequence[Message | Mapping[str, object]]) -> list[str]:
        """All of them or none, and their ids. Unsure: the answer was lost, and they may have been published."""
        accepted = checked(messages)
        with as_broker_errors(may_have_happened=True):
            return await self._publisher.publish(check_topic_name(topic), accepted)

    async def put_back(self, subscription: str, messages: Sequence[Message]) -> int:
        """Messages that came from it, into this subscription alone. Returns how many it had room for."""
        with as_broker_errors(may_have_happened=True):
            seen = await self.directory.subscription(subscription)
            if seen is None:
                raise SubscriptionNotFound(subscription)
            return await self._publisher.put_back(seen.record.topic, subscription, messages)

    async def pull(
        self, subscription: str, max_messages: int, *, wait_s: float = 0, ack_deadline_s: float | None = None
    ) -> list[PulledMessage]:
        """`wait_s`: how long to wait for the first one, if there is none now. `ack_deadline_s`: other than the
        subscription's. If the caller is cancelled, nothing stays out with him.
        """
        if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not 0 <= wait_s <= MOST_WAIT_S:
            raise InvalidArgument(f"wait_seconds must be a number from 0 to {MOST_WAIT_S}, is {wait_s!r}")
        rules = None if ack_deadline_s is None else rules_within(ack_deadline_s)
        with as_broker_errors():
            if not wait_s:
                return (await self._take(subscription, max_messages, rules)).messages
            return await self._pull_within(subscription, max_messages, wait_s, rules)

    async def _pull_within(
        self, subscription: str, max_messages: int, wait_s: float, rules: Choice
    ) -> list[PulledMessage]:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + wait_s
        with self._waits.waiter() as waiter:
            while True:
                waiter.shows.clear()
                pull = await self._take(subscription, max_messages, rules)
                left_s = give_up - loop.time()
                if pull.messages or left_s <= 0:
                    return pull.messages
                waiter.prefix = pull.prefix
                await waiter.wait(left_s=left_s, due_ms=pull.due_ms)

    async def _take(self, subscription: str, most: int, rules: Choice) -> Pull:
        taking = asyncio.get_running_loop().create_task(self._puller.pull(subscription, most, rules))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            # What Redis was asked for it may give: that has to go back when it comes, for nobody will have it.
            self._later(self._give_back_taken(subscription, taking))
            raise

    def give_back(self, subscription: str, messages: Sequence[PulledMessage]) -> None:
        """As if they had not been pulled, for they reached nobody. It is done soon, and before `close` returns."""
        if messages:
            self._later(self._give_back(subscription, messages))

    def _later(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _give_back_taken(self, subscription: str, taking: asyncio.Task[Pull]) -> None:
        try:
            pull = await taking
        except (BrokerError, StateError) as error:
            log.info("a pull of subscription %s that nobody waits for any more failed: %s", subscription, error)
        else:
            await self._give_back(subscription, pull.messages)

    async def _give_back(self, subscription: str, messages: Sequence[PulledMessage]) -> None:
        try:
            await self._puller.conclude(subscription, [(one.ack_id, given_back) for one in messages])
        except (BrokerError, StateError) as error:
            log.info("what was pulled of subscription %s for nobody shows again late: %s", subscription, error)

    async def settle(self, subscription: str, verdicts: Sequence[tuple[Showing, What]]) -> list[bool]:
        """Many at a time, all of this subscription. False: it is gone, was shown again, or its time is over."""
        results: list[int] = []
        with as_broker_errors():
            for first in range(0, len(verdicts), BATCH):
                results += await self._puller.settle(subscription, verdicts[first : first + BATCH])
        return [result == DONE for result in results]

    def push(self, subscription: str) -> Push:
        """For the router, which takes many at a time and waits by itself."""
        return Push(self.directory, self._puller, subscription)

    async def ack(self, ack_id: str) -> None:
        with as_broker_errors():
            await self._puller.ack(ack_id)

    async def nack(self, ack_id: str) -> None:
        with as_broker_errors():
            await self._puller.nack(ack_id)

    async def modify_ack_deadline(self, ack_id: str, seconds: float) -> None:
        with as_broker_errors():
            await self._puller.modify_ack_deadline(ack_id, seconds)

    async def seek(self, subscription: str, time_s: float) -> int:
        """Skip what was published before that time, in seconds since 1970. Returns how many messages that were."""
        if isinstance(time_s, bool) or not isinstance(time_s, int | float) or not math.isfinite(time_s) or time_s < 0:
            raise InvalidArgument(f"time must be seconds since 1970, is {time_s!r}")
        with as_broker_errors():
            return await self.directory.with_subscription(subscription, lambda it: it.engine.seek(round(time_s * 1e6)))

    async def all_depths(self, names: Sequence[str]) -> dict[str, Depths]:
        """Of those that are there, some at a time."""
        found: dict[str, Depths] = {}
        with as_broker_errors():
            for first in range(0, len(names), _DEPTHS_AT_ONCE):
                records = await self.directory.subscriptions_of(tuple(names[first : first + _DEPTHS_AT_ONCE]))
                engines = [self.directory.engine_of(name, record) for name, record in records.items()]
                depths = await asyncio.gather(*(engine.depths() for engine in engines))
                found.update(zip(records, depths, strict=True))
        return found

    async def _carry(self, pulled: Pulled) -> None:
        try:
            await self._courier.carry(pulled)
        except (BrokerError, StateError) as error:
            # What moved them is done, and was told so. The upkeep brings them, whoever runs it.
            log.info("dead letters of subscription %s are left for later: %s", pulled.name, error)


@contextlib.contextmanager
def as_broker_errors(*, may_have_happened: bool = False) -> Iterator[None]:
    try:
        yield
    except StateUnavailable as error:
        if may_have_happened and not was_never_sent(error):
            raise Unsure(f"the answer was lost, the messages may have been published: {error}") from error
        raise Unavailable(str(error)) from error
    except StateFull as error:
        raise Exhausted(str(error)) from error
    except StateError as error:
        raise FailedPrecondition(str(error)) from error
