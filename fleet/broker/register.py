"""Topics and subscriptions come and go: the catalogue first, then whoever holds messages is told.

Between the two, callers that know less go on as before; afterwards they are refused and read the catalogue again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import msgspec

from fleet.broker.directory import Directory, Seen, written
from fleet.broker.errors import AlreadyExists, FailedPrecondition, SubscriptionNotFound, TopicNotFound
from fleet.broker.options import SubscriptionOptions
from fleet.broker.records import SubscriptionRecord, TopicRecord
from fleet.state.catalogue import Change
from fleet.state.engine import Stale

FORGOTTEN_AFTER_MS = 24 * 60 * 60 * 1000
"""For how long it is remembered that something was deleted, for callers that have not heard of it."""
_TRIES = 20
_TOPIC, _SUBSCRIPTION = "topic", "subscription"


class Register:
    def __init__(self, directory: Directory, wall_ms: Callable[[], int]) -> None:
        self._directory = directory
        self._wall_ms = wall_ms
        self._ahead_us = 0
        """How far incarnations are ahead of our clock: one before was given out by a clock that was ahead of it."""

    async def add_topic(self, name: str) -> bool:
        """Adding it twice is adding it once. Returns whether this was the first time."""
        for _ in range(_TRIES):
            if await self._directory.topic(name) is not None:
                return False
            record = TopicRecord(created_ms=self._wall_ms(), incarnation=self._new_incarnation(), version=1)
            if not await self._change(Change("topics", name, "", written(record))):
                continue
            try:
                await self._directory.state_of(name, record).establish()
                return True
            except Stale:
                # One of that name was deleted under a number above ours: a clock stepped back.
                await self._change(Change("topics", name, written(record), ""))
                self._ahead_us += 60_000_000
        raise FailedPrecondition(f"topic {name} changes all the time")

    async def remove_topic(self, name: str) -> None:
        """Its subscriptions stay without it, and give nothing any more: not even what is with somebody can be acked."""
        for _ in range(_TRIES):
            topic = await self._directory.topic(name)
            if topic is None:
                raise TopicNotFound(name)
            gone = msgspec.structs.replace(topic.record, incarnation=topic.record.incarnation + 1)
            changes, after = [Change("topics", name, topic.text, ""), _leaves(_TOPIC, name, gone)], {}
            for one in topic.record.subscriptions:
                seen = await self._directory.subscription(one)
                if seen is not None:
                    after[one] = msgspec.structs.replace(
                        seen.record, detached=True, incarnation=seen.record.incarnation + 1
                    )
                    changes.append(Change("subscriptions", one, seen.text, written(after[one])))
            if await self._change(*changes):
                break
        else:
            raise FailedPrecondition(f"topic {name} changes all the time")
        await self._end_topic(name, gone)
        for one, record in after.items():
            await self._empty(one, record)
        self._directory.forget(topic=name)

    async def add_subscription(self, name: str, topic: str, options: SubscriptionOptions) -> bool:
        """Adding it twice with the same options is adding it once. Returns whether this was the first time."""
        for _ in range(_TRIES):
            of = await self._directory.topic(topic)
            there = await self._directory.subscription(name)
            if there is not None:
                self._check_same(name, there, topic, options)
                return False
            if of is None:
                raise TopicNotFound(topic)
            record = SubscriptionRecord(
                topic=topic,
                topic_incarnation=of.record.incarnation,
                created_ms=self._wall_ms(),
                incarnation=self._new_incarnation(),
                options=options,
            )
            names = (*of.record.subscriptions, name)
            wider = msgspec.structs.replace(of.record, version=of.record.version + 1, subscriptions=names)
            changes = (
                Change("topics", topic, of.text, written(wider)),
                Change("subscriptions", name, "", written(record)),
            )
            if not await self._change(*changes):
                continue
            self._directory.forget(topic=topic, subscription=name)
            # Stale: it has changed again meanwhile, and whoever did that has said so.
            with contextlib.suppress(Stale):
                await self._directory.engine_of(name, record).establish()
                await self._directory.state_of(topic, wider).establish()
            return True
        raise FailedPrecondition(f"topic {topic} changes all the time")

    async def remove_subscription(self, name: str) -> None:
        for _ in range(_TRIES):
            seen = await self._directory.subscription(name)
            if seen is None:
                raise SubscriptionNotFound(name)
            gone = msgspec.structs.replace(seen.record, incarnation=seen.record.incarnation + 1)
            changes = [Change("subscriptions", name, seen.text, ""), _leaves(_SUBSCRIPTION, name, gone)]
            of = None if seen.record.detached else await self._directory.topic(seen.record.topic)
            if of is not None:
                names = tuple(one for one in of.record.subscriptions if one != name)
                narrower = msgspec.structs.replace(of.record, version=of.record.version + 1, subscriptions=names)
                changes.append(Change("topics", seen.record.topic, of.text, written(narrower)))
            if await self._change(*changes):
                break
        else:
            raise FailedPrecondition(f"subscription {name} changes all the time")
        await self._end_subscription(name, gone)
        self._directory.forget(topic=seen.record.topic, subscription=name)

    async def finish_removals(self) -> None:
        """Those whose remover died before the last of it was done."""
        async for key, text in self._directory.catalogue.all("leaving"):
            kind, name, _ = key.split(" ")
            if kind == _TOPIC:
                await self._end_topic(name, msgspec.json.decode(text, type=TopicRecord))
            else:
                await self._end_subscription(name, msgspec.json.decode(text, type=SubscriptionRecord))

    async def _end_topic(self, name: str, gone: TopicRecord) -> None:
        with contextlib.suppress(Stale):
            await self._directory.state_of(name, gone).establish(keep_ms=FORGOTTEN_AFTER_MS)
        await self._change(_left(_TOPIC, name, gone))

    async def _end_subscription(self, name: str, gone: SubscriptionRecord) -> None:
        topic = await self._directory.topic(gone.topic)
        # Stale: it has changed again, or one of that name was made anew, and whoever did that has said so.
        with contextlib.suppress(Stale):
            if topic is not None:
                # First, so that nobody publishes to it behind our back.
                await self._directory.state_of(gone.topic, topic.record).establish()
        with contextlib.suppress(Stale):
            await self._empty(name, gone)
        await self._change(_left(_SUBSCRIPTION, name, gone))

    async def _empty(self, name: str, record: SubscriptionRecord) -> None:
        """Throw away what it holds; what is with somebody cannot be acked any more."""
        engine = self._directory.engine_of(name, record)
        await engine.establish(keep_ms=None if record.detached else FORGOTTEN_AFTER_MS)
        await engine.clear()
        self._directory.forget(subscription=name)

    async def _change(self, *changes: Change) -> bool:
        return await self._directory.catalogue.change(*changes)

    def _new_incarnation(self) -> int:
        return time.time_ns() // 1000 + self._ahead_us

    @staticmethod
    def _check_same(name: str, there: Seen[SubscriptionRecord], topic: str, options: SubscriptionOptions) -> None:
        if there.record.topic != topic or there.record.options != options or there.record.detached:
            raise AlreadyExists(f"Subscription exists with another topic or other options: {name}")


def _leaves(kind: str, name: str, gone: TopicRecord | SubscriptionRecord) -> Change:
    """With what removes it: whoever comes by later finishes that."""
    return Change("leaving", f"{kind} {name} {gone.incarnation}", "", written(gone))


def _left(kind: str, name: str, gone: TopicRecord | SubscriptionRecord) -> Change:
    return Change("leaving", f"{kind} {name} {gone.incarnation}", written(gone), "")
