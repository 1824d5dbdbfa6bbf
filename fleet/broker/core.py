"""Topics and subscriptions, asynchronously: what `MessageQueue`, the server and the doors are made of."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Self

from fleet.broker.courier import Courier
from fleet.broker.directory import Directory, Pulled
from fleet.broker.errors import (
    Exhausted,
    FailedPrecondition,
    InvalidArgument,
    TopicNotFound,
    Unavailable,
    Unsure,
)
from fleet.broker.message import Message, PulledMessage, checked
from fleet.broker.names import check_subscription_name, check_topic_name
from fleet.broker.options import SubscriptionOptions
from fleet.broker.publish import Publisher, was_never_sent
from fleet.broker.pull import Puller
from fleet.broker.records import Subscription, Topic, shown_subscription, shown_topic
from fleet.broker.register import Register
from fleet.broker.sweep import Sweeper
from fleet.errors import StateError, StateFull, StateUnavailable
from fleet.state.connect import Client, connect
from fleet.state.engine import Depths

log = logging.getLogger("fleet.broker")


class Broker:
    """`now_ms` is for tests; empty means Redis TIME."""

    def __init__(self, client: Client, *, now_ms: Callable[[], str] = lambda: "") -> None:
        self.client = client
        self.directory = Directory(client, now_ms)
        self._register = Register(self.directory, lambda: int(now_ms() or time.time_ns() // 1_000_000))
        self._courier = Courier(self.directory)
        self._publisher = Publisher(self.directory)
        self._puller = Puller(self.directory, self._carry)
        self.sweeper = Sweeper(self.directory, self._carry)

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, url: str) -> AsyncIterator[Self]:
        with _as_broker_errors():
            client = await connect(url)
        try:
            yield cls(client)
        finally:
            await client.aclose()

    # Topics -------------------------------------------------------------------------------------------

    async def register_topic(self, name: str) -> None:
        with _as_broker_errors():
            await self._register.add_topic(check_topic_name(name))

    async def unregister_topic(self, name: str) -> None:
        with _as_broker_errors():
            await self._register.remove_topic(name)

    async def get_topic(self, name: str) -> Topic | None:
        with _as_broker_errors():
            seen = await self.directory.topic(name)
        return shown_topic(name, seen.record) if seen else None

    async def get_all_topics(self) -> list[Topic]:
        with _as_broker_errors():
            return [shown_topic(name, record) for name, record in (await self.directory.topics()).items()]

    # Subscriptions ------------------------------------------------------------------------------------

    async def register_subscription(self, name: str, topic: str, options: SubscriptionOptions) -> None:
        with _as_broker_errors():
            await self._register.add_subscription(check_subscription_name(name), topic, options)

    async def unregister_subscription(self, name: str) -> None:
        with _as_broker_errors():
            await self._register.remove_subscription(name)

    async def get_subscription(self, name: str) -> Subscription | None:
        with _as_broker_errors():
            seen = await self.directory.subscription(name)
        return shown_subscription(name, seen.record) if seen else None

    async def get_subscriptions_for_topic(self, topic: str) -> list[Subscription]:
        with _as_broker_errors():
            seen = await self.directory.topic(topic)
            if seen is None:
                raise TopicNotFound(topic)
            found = await self.directory.subscriptions_of(seen.record.subscriptions)
        return [shown_subscription(name, record) for name, record in found.items()]

    async def get_all_subscriptions(self) -> list[Subscription]:
        with _as_broker_errors():
            found = await self.directory.subscriptions()
        return [shown_subscription(name, record) for name, record in found.items()]

    # Messages -----------------------------------------------------------------------------------------

    async def publish(self, topic: str, messages: Sequence[Message | Mapping[str, object]]) -> list[str]:
        """All of them or none, and their ids. Unsure: the answer was lost, and they may have been published."""
        accepted = checked(messages)
        with _as_broker_errors(may_have_happened=True):
            return await self._publisher.publish(check_topic_name(topic), accepted)

    async def pull(self, subscription: str, max_messages: int) -> list[PulledMessage]:
        with _as_broker_errors():
            return (await self._puller.pull(subscription, max_messages))[0]

    async def pull_or_due(self, subscription: str, max_messages: int) -> tuple[list[PulledMessage], int | None]:
        """And if there is nothing: in how many ms there may be something, or None for never."""
        with _as_broker_errors():
            return await self._puller.pull(subscription, max_messages)

    async def ack(self, ack_id: str) -> None:
        with _as_broker_errors():
            await self._puller.ack(ack_id)

    async def nack(self, ack_id: str) -> None:
        with _as_broker_errors():
            await self._puller.nack(ack_id)

    async def modify_ack_deadline(self, ack_id: str, seconds: float) -> None:
        with _as_broker_errors():
            await self._puller.modify_ack_deadline(ack_id, seconds)

    async def seek(self, subscription: str, time_s: float) -> int:
        """Skip what was published before that time, in seconds since 1970. Returns how many messages that were."""
        if isinstance(time_s, bool) or not isinstance(time_s, int | float) or not math.isfinite(time_s) or time_s < 0:
            raise InvalidArgument(f"time must be seconds since 1970, is {time_s!r}")
        with _as_broker_errors():
            return await self.directory.with_subscription(subscription, lambda it: it.engine.seek(round(time_s * 1e6)))

    async def depths(self, subscription: str) -> Depths:
        with _as_broker_errors():
            return await self.directory.with_subscription(subscription, lambda pulled: pulled.engine.depths())

    async def _carry(self, pulled: Pulled) -> None:
        await self._courier.carry(pulled)


@contextlib.contextmanager
def _as_broker_errors(*, may_have_happened: bool = False) -> Iterator[None]:
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
