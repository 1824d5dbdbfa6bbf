"""Messages for Fleet's own rows: into a pool as a coordinator puts them there, or into a queue as a producer does."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvloop

from benchmark.errors import BenchError
from benchmark.house.house import POOL, QUEUE
from benchmark.machine.sink import TOKEN
from fleet.clock import SystemClock
from fleet.lease import Lease
from fleet.sources.base import Outgoing, Surroundings
from fleet.sources.open import open_publisher, open_source
from fleet.state.connect import Client, connected
from fleet.state.entry import Entry
from fleet.state.keys import QueueKeys
from fleet.state.pool import Pool, PoolSettings
from fleet.state.queue import Queue
from fleet.state.registry import Registry

BATCH = 500
_OWNER_TTL_MS = 600_000


def group_name(number: int, groups: int) -> str:
    return f"group-{number % groups:07d}"


def message_body(number: int, *, target: str, groups: int) -> bytes:
    """A body as it lies on a queue, of a usual size: 210 to 220 bytes."""
    return json.dumps(
        {
            "id": message_id(number),
            "poolCode": POOL,
            "authToken": TOKEN,
            "mediationType": "HTTP",
            "mediationTarget": target,
            "messageGroupId": group_name(number, groups),
        },
        separators=(",", ":"),
    ).encode()


def message_id(number: int) -> str:
    return f"01JBENCH{number:018d}"


def on_redis(url: str, job: Callable[[Client], Awaitable[Any]]) -> Any:
    """Run one asynchronous job on a client of its own."""

    async def run() -> Any:
        async with connected(url) as client:
            return await job(client)

    return uvloop.run(run())


async def add_pools(client: Client, codes: list[str], *, concurrency: int, capacity: int) -> None:
    for code in codes:
        await Pool(client, code).configure("1", PoolSettings(concurrency, capacity))
    await Registry(client).add_pools(set(codes))


async def fill_pool(
    client: Client,
    *,
    count: int,
    groups: int,
    target: str,
    concurrency: int,
    first: int = 0,
    capacity: int = 0,
    track: bool = True,
) -> None:
    """Configure the pool and put the messages from number `first` up to `count` in, as a coordinator would."""
    await add_pools(client, [POOL], concurrency=concurrency, capacity=capacity or count + BATCH)
    owner = Lease(client=client, key=QueueKeys(QUEUE).owner, owner="bench", ttl_ms=_OWNER_TTL_MS, clock=SystemClock())
    await owner.acquire()
    queue, pool = Queue(client, QUEUE, epoch=owner.epoch), Pool(client, POOL)
    for batch in _batches(count, begin=first):
        ids = [(message_id(i), group_name(i, groups)) for i in batch]
        tokens = ["1"] * len(ids)
        if track:
            # Handles as long as the embedded queue's.
            tracking = await queue.track(
                [(name, name, POOL, group, f"{name[8:]}-1") for name, group in ids], targets=[target] * len(ids)
            )
            tokens = [tracked.token for tracked in tracking]
        now_ms = time.time_ns() // 1_000_000
        entries = [
            Entry(QUEUE, name, token, f"{batch.start:016d}", group, group, now_ms, name, target, TOKEN, True)
            for (name, group), token in zip(ids, tokens, strict=True)
        ]
        answer = await pool.submit(QUEUE, owner.epoch, entries)
        if answer.tag != "ok" or answer.accepted != len(entries):
            raise BenchError(f"the pool took {answer.accepted} of {len(entries)} messages ({answer.tag})")


async def fill_queue(
    uri: str,
    *,
    count: int,
    groups: int,
    target: str,
    first: int = 0,
    batch: int = BATCH,
    around: Surroundings | None = None,
) -> float:
    """Publish the messages from number `first` up to `count`; returns the seconds that the queue took for them."""
    publisher = open_publisher(uri, around=around)
    await publisher.open()
    seconds = 0.0
    try:
        for numbers in _batches(count, batch, first):
            outgoing = [
                Outgoing(message_id(i), message_body(i, target=target, groups=groups), group_name(i, groups))
                for i in numbers
            ]
            began = time.perf_counter()
            refusals = await publisher.publish(outgoing)
            seconds += time.perf_counter() - began
            if any(refusals):
                raise BenchError(f"the queue refused a message: {next(filter(None, refusals))}")
    finally:
        await publisher.close()
    return seconds


async def depth_of(uri: str, around: Surroundings | None = None) -> int:
    """All a queue still holds, visible or not."""
    source = open_source(QUEUE, uri, _OWNER_TTL_MS, around=around)
    await source.open()
    try:
        depth = await source.depth()
    finally:
        await source.close()
    return depth.waiting + depth.invisible


def _batches(count: int, size: int = BATCH, begin: int = 0) -> Iterator[range]:
    for first in range(begin, count, size):
        yield range(first, min(first + size, count))
