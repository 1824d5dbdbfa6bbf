"""A queue of the SQS door as the router uses it: what the door does with it, without the words of SQS.

What asks a queue of several partitions asks each, and begins with another one every time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from fleet.broker.names import message_id
from fleet.broker.sqs import message
from fleet.broker.sqs.catalogue import DEDUP_MS, Queue, Queues
from fleet.broker.sqs.courier import Courier
from fleet.broker.sqs.errors import SqsError
from fleet.broker.sqs.send import new_message
from fleet.broker.sqs.stored import Header, unpack
from fleet.errors import FleetError, SourceError, SourceFull, SourceUnavailable, StateError, StateFull, StateUnavailable
from fleet.sources.base import Depth, Outgoing
from fleet.sources.own.door.address import DoorAddress
from fleet.sources.sqs.entry import GROUP_ATTRIBUTE, OWN_GROUP, QueueFacts, entry_of
from fleet.state.connect import Client
from fleet.state.engine import DONE, GONE, PER_LANE, Showing, Verdict
from fleet.waiting import end

log = logging.getLogger("fleet.sources")


class Shown(NamedTuple):
    """One showing of a message."""

    broker_id: str
    """Its MessageId, the same as the door tells."""
    number: str
    times: int
    lane: str
    """What holds it back: its group as the queue has it, which a standard queue has not."""
    group: str | None
    body: bytes


class DoorQueue:
    def __init__(self, client: Client, address: DoorAddress) -> None:
        self._address = address
        self._queues = Queues(client)
        self._courier = Courier(self._queues)
        self._carrying: asyncio.Task[None] | None = None
        self._start = 0
        self._prefixes: frozenset[str] = frozenset()

    async def facts(self) -> QueueFacts:
        """SourceError if there is no such queue."""

        async def read(queue: Queue) -> QueueFacts:
            return QueueFacts(queue.attributes.fifo, queue.attributes.message_bytes)

        with as_source_errors(self._address):
            await self._queues.find(self._address.queue)  # another may have deleted it since we knew it
            return await self._queues.use(self._address.queue, read)

    def is_ours(self, prefix: str) -> bool:
        """Whether a signal is about one of its partitions."""
        return prefix in self._prefixes

    async def send(self, messages: Sequence[Outgoing]) -> None:
        """Append in order, for each partition all or nothing. They are such as `entry.refusal` has nothing against."""

        async def send(queue: Queue) -> None:
            attributes = queue.attributes
            facts = QueueFacts(attributes.fifo, attributes.message_bytes)
            checked = [message.check(entry_of(one, facts), attributes) for one in messages]
            placed = [(attributes.partition_of(sent.group), new_message(queue, sent)) for sent in checked]
            placed.sort(key=lambda pair: pair[0])  # stable: within a partition they stay in order
            for partition, pairs in groupby(placed, key=lambda pair: pair[0]):
                await queue.engines[partition].send([new for _, new in pairs], dedup_ms=DEDUP_MS)

        with as_source_errors(self._address):
            await self._queues.use(self._address.queue, send)

    async def receive(self, most: int, *, visibility_ms: int) -> tuple[list[Shown], int | None]:
        """The oldest messages that may be shown. If there are none, after how many ms one may be, or None for never."""

        async def receive(queue: Queue) -> tuple[list[Shown], int | None]:
            self._prefixes = frozenset(engine.prefix for engine in queue.engines)
            rules = replace(queue.rules(0, per_lane=PER_LANE), visibility_ms=visibility_ms)
            shown: list[Shown] = []
            dues_ms: list[int] = []
            self._start += 1
            for step in range(len(queue.engines)):
                partition = (self._start + step) % len(queue.engines)
                taking = await queue.engines[partition].receive(most - len(shown), rules)
                shown += [_shown(queue, partition, one) for one in taking.showings]
                if taking.due_ms is not None:
                    dues_ms.append(taking.due_ms)
                if taking.moved:
                    self._carry_soon()
                if len(shown) >= most:
                    break
            return shown, min(dues_ms, default=None)

        with as_source_errors(self._address):
            return await self._queues.use(self._address.queue, receive)

    async def conclude(self, verdicts: Sequence[Verdict]) -> list[bool]:
        """Delete, show again or hide longer. False for a showing that no longer counts."""

        async def conclude(queue: Queue) -> list[bool]:
            flags = [False] * len(verdicts)
            places: dict[int, list[int]] = {}
            for place, verdict in enumerate(verdicts):
                places.setdefault(queue.attributes.partition_of(verdict.group), []).append(place)
            for partition, at in places.items():
                results = await queue.engines[partition].conclude([verdicts[place] for place in at])
                for place, result in zip(at, results, strict=True):
                    # What is gone counts as deleted.
                    flags[place] = result == DONE or (result == GONE and verdicts[place].what == "d")
            return flags

        with as_source_errors(self._address):
            return await self._queues.use(self._address.queue, conclude)

    async def depth(self) -> Depth:
        async def ask(queue: Queue) -> Depth:
            found = await asyncio.gather(*(engine.depths() for engine in queue.engines))
            messages = sum(one.messages for one in found)
            hidden, delayed = sum(one.hidden for one in found), sum(one.delayed for one in found)
            # In a FIFO queue what is delayed is not hidden: its age is looked at when it is received.
            invisible = hidden + delayed if queue.attributes.fifo else hidden
            oldest_ms = max(one.oldest_ms for one in found)
            return Depth(max(0, messages - invisible), invisible, oldest_ms / 1000, delayed)

        with as_source_errors(self._address):
            return await self._queues.use(self._address.queue, ask)

    async def purge(self) -> int:
        """Throw away what is there now, shown or not, and its dedup ids. Returns how many."""

        async def purge(queue: Queue) -> int:
            return sum([await engine.purge() for engine in queue.engines])

        with as_source_errors(self._address):
            return await self._queues.use(self._address.queue, purge)

    async def close(self) -> None:
        """Dead letters that are on their way are brought by whoever carries next."""
        if self._carrying is not None:
            await end([self._carrying])

    def _carry_soon(self) -> None:
        """Dead letters wait in an outbox: bring them beside the polls, whether or not a door runs."""
        if self._carrying is None or self._carrying.done():
            self._carrying = asyncio.get_running_loop().create_task(self._carry())

    async def _carry(self) -> None:
        try:
            await self._queues.use(self._address.queue, self._courier.carry)
        except FleetError as error:
            log.info("dead letters of %s are left for later: %s", self._address.uri, error)


def _shown(queue: Queue, partition: int, showing: Showing) -> Shown:
    header, body = unpack(showing.stored)
    broker_id = header.id or id_of(queue, partition, showing.number)
    group = group_of(header, showing.group, fifo=queue.attributes.fifo)
    return Shown(broker_id, showing.number, showing.times, showing.group, group, body.encode())


def id_of(queue: Queue, partition: int, number: str) -> str:
    """The MessageId of what was sent to this queue. What was moved there brings its own."""
    return message_id(queue.engines[partition].prefix, queue.record.incarnation, partition, int(number))


def group_of(header: Header, lane: str, *, fifo: bool) -> str | None:
    """As its sender meant it: FIFO asks for a group, and a standard queue long had none."""
    group = lane if fifo else header.group
    if not group or group.startswith(OWN_GROUP):
        group = header.attributes.get(GROUP_ATTRIBUTE, {}).get("StringValue", "")
    return group or None


@contextlib.contextmanager
def as_source_errors(address: DoorAddress) -> Iterator[None]:
    try:
        yield
    except StateUnavailable as error:
        raise SourceUnavailable(f"queue {address.uri}: {error}") from error
    except StateFull as error:
        raise SourceFull(f"queue {address.uri}: {error}") from error
    except SqsError as error:
        kind = SourceUnavailable if error.status >= 500 else SourceError
        raise kind(f"queue {address.uri}: {error}") from error
    except StateError as error:
        raise SourceError(f"queue {address.uri}: {error}") from error
