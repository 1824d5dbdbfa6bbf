"""What stands behind the SQS door, for people: its queues, and one of them whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.broker.sqs import errors
from fleet.broker.sqs.attributes import Facts
from fleet.broker.sqs.catalogue import Queue, Queues, engine_of
from fleet.broker.sqs.names import arn
from fleet.broker.sqs.records import QueueRecord
from fleet.broker.sqs.throttle import buckets_of
from fleet.errors import FleetError
from fleet.state.connect import Client, translated
from fleet.state.engine import Depths, Engine

_AT_ONCE = 100


class NoSuchQueue(FleetError):
    """There is no queue of that name behind the SQS door."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one queue, over its partitions."""

    visible: int
    not_visible: int
    delayed: int
    moving: int
    """On their way to a dead-letter queue, or back; counted as not visible too."""
    oldest_s: float


@dataclass(frozen=True, slots=True)
class QueueNow:
    name: str
    record: QueueRecord
    counts: Counts


def counts_of(found: list[Depths], *, fifo: bool) -> Counts:
    delayed, hidden = sum(one.delayed for one in found), sum(one.hidden for one in found)
    messages, moving = sum(one.messages for one in found), sum(one.moving for one in found)
    # Of a standard queue what is delayed is hidden as well.
    out = hidden if fifo else hidden - delayed
    oldest_s = max((one.oldest_ms for one in found), default=0) / 1000
    return Counts(max(0, messages - out - delayed), out + moving, delayed, moving, oldest_s)


async def count(engines: list[Engine], *, fifo: bool) -> Counts:
    return counts_of(list(await asyncio.gather(*(engine.depths(look=1) for engine in engines))), fifo=fifo)


async def queues(client: Client) -> list[QueueNow]:
    """All of them, by name."""
    here = Queues(client)
    records = sorted((await here.all()).items())
    found: list[QueueNow] = []
    for first in range(0, len(records), _AT_ONCE):
        part = records[first : first + _AT_ONCE]
        found += await asyncio.gather(*(_now(client, name, record) for name, record in part))
    return found


async def queue(client: Client, name: str) -> QueueNow:
    seen = await Queues(client).seen(name)
    if seen is None:
        raise NoSuchQueue(f"there is no queue {name} behind the SQS door")
    return await _now(client, name, seen[1])


async def purge(client: Client, name: str) -> int:
    """At once, however long ago the last one was. Returns how many messages are gone."""

    async def purge(found: Queue) -> int:
        return sum([await engine.purge() for engine in found.engines])

    try:
        return await Queues(client).use(name, purge)
    except errors.SqsError as error:
        raise NoSuchQueue(f"queue {name}: {error}") from error


async def tokens(client: Client, records: Mapping[str, QueueRecord]) -> dict[tuple[str, str], float]:
    """What the buckets of these queues hold, by queue and bucket."""
    with translated():
        seconds, micros = await client.time()
    now_ms = seconds * 1000 + micros // 1000
    asked = [
        (name, bucket, engine_of(client, name, record, 0))
        for name, record in records.items()
        for bucket in buckets_of(record.attributes.throttle)
    ]
    found: dict[tuple[str, str], float] = {}
    for first in range(0, len(asked), _AT_ONCE):
        part = asked[first : first + _AT_ONCE]
        held = await asyncio.gather(
            *(
                engine.tokens(bucket.name, capacity=bucket.capacity, refill=bucket.refill, now_ms=now_ms)
                for _, bucket, engine in part
            )
        )
        found |= {(name, bucket.name): left for (name, bucket, _), left in zip(part, held, strict=True)}
    return found


def described(now: QueueNow, asked: Iterable[str], region: str) -> dict[str, str]:
    """The attributes that were asked for; `All` is every one."""
    counts = now.counts
    facts = Facts(
        arn=arn(region, now.name),
        visible=counts.visible,
        not_visible=counts.not_visible,
        delayed=counts.delayed,
        created_s=now.record.created_s,
        modified_s=now.record.modified_s,
    )
    return now.record.attributes.described(asked, facts)


async def _now(client: Client, name: str, record: QueueRecord) -> QueueNow:
    engines = [engine_of(client, name, record, place) for place in range(record.attributes.partitions)]
    return QueueNow(name, record, await count(engines, fifo=record.attributes.fifo))
