"""What the script tests play on: one client, one time that all share, and the messages they send."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio.cluster import RedisCluster

from fleet.state.by_hand import PoolByHand
from fleet.state.connect import Client, subscribe_connection
from fleet.state.entry import ACK, Entry, outbox_item
from fleet.state.keys import QueueKeys
from fleet.state.pool import Claim, Exchanged, Pool, PoolSettings, Settlement
from fleet.state.queue import Queue
from fleet.state.registry import Registry

NOON_MS = 1_700_000_000_000
TTL_MS = 10_000
OWNER_EPOCH = "1700000000000000"
_calls = itertools.count(1)


class Stage:
    """Time stands still unless a test advances it, for everything the stage made."""

    def __init__(self, *, client: Client, url: str) -> None:
        self.client = client
        self.url = url
        self.now_ms = NOON_MS
        self._actors: list[Pool | Queue | Registry] = []

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        for actor in self._actors:
            actor.now_ms = str(self.now_ms)

    async def pool(self, code: str = "P", **settings: Any) -> Pool:
        """A configured pool: 10 slots and room for 1,000 unless said otherwise."""
        pool = self.unknown_pool(code)
        await pool.configure("1", pool_settings(**settings))
        return pool

    def unknown_pool(self, code: str = "P") -> Pool:
        pool = Pool(self.client, code, now_ms=str(self.now_ms))
        self._actors.append(pool)
        return pool

    async def queue(self, name: str = "q", *, epoch: str = OWNER_EPOCH) -> Queue:
        """A queue owned under that epoch."""
        await self.client.hset(QueueKeys(name).owner, mapping={"owner": "me", "epoch": epoch})
        queue = Queue(self.client, name, epoch=epoch, now_ms=str(self.now_ms))
        self._actors.append(queue)
        return queue

    def registry(self) -> Registry:
        registry = Registry(self.client, now_ms=str(self.now_ms))
        self._actors.append(registry)
        return registry

    async def keys(self) -> set[str]:
        """Every key there is, on every node."""
        return {key async for key in self.client.scan_iter()}


def pool_settings(**settings: Any) -> PoolSettings:
    return PoolSettings(**{"concurrency": 10, "capacity": 1000, **settings})


def entry(
    broker_id: str,
    group: str = "g",
    *,
    queue: str = "q",
    token: str = "1",
    batch: str = "b",
    high: bool = False,
) -> Entry:
    return Entry(
        queue, broker_id, token, batch, group, group, NOON_MS, f"m{broker_id}", "http://127.0.0.1/", "", True, high
    )


def in_group(count: int, group: str = "g", **what: Any) -> list[Entry]:
    """Messages of one group, in order."""
    return [entry(f"{group}{i}", group, **what) for i in range(count)]


def in_groups(count: int, prefix: str = "g", **what: Any) -> list[Entry]:
    """As many messages, each of a group of its own."""
    return [entry(f"{prefix}{i}", f"{prefix}{i}", **what) for i in range(count)]


async def submit(pool: Pool, entries: Sequence[Entry], *, queue: str = "q") -> None:
    """Submit what must fit."""
    answer = await pool.submit(queue, OWNER_EPOCH, entries)
    assert (answer.tag, answer.accepted, answer.cascaded) == ("ok", len(entries), frozenset())


async def claim(pool: Pool, want: int = 1, *, worker: str = "w", chunk: int = 1) -> list[Claim]:
    return (await pool.exchange(worker, ttl_ms=TTL_MS, want=want, chunk=chunk)).claims


async def claim_one(pool: Pool, *, worker: str = "w", chunk: int = 1) -> Claim:
    (claimed,) = await claim(pool, worker=worker, chunk=chunk)
    return claimed


async def settle(
    pool: Pool, *settlements: Settlement, worker: str = "w", call: int | None = None, **more: Any
) -> Exchanged:
    """One call of a worker, under a number of its own unless it is one said again."""
    number = next(_calls) if call is None else call
    return await pool.exchange(worker, ttl_ms=TTL_MS, call=number, settlements=settlements, **more)


async def pause(pool: Pool, *, paused: bool = True) -> bool:
    return await PoolByHand(pool.client, pool.code).pause(paused)


def settlement(claimed: Claim, *, verdict: str = ACK, count: int | None = None, release: str = "ready") -> Settlement:
    """Settle the first `count` messages of a claim (all of them by default) with one verdict."""
    items = [outbox_item(message, verdict) for message in claimed.entries[:count]]
    return Settlement(claimed.lane, claimed.epoch, items, release)


async def outboxed(pool: Pool, worker: str = "w") -> list[str]:
    """All that a worker has settled and that was not trimmed."""
    return sorted(item for items in (await pool.outbox(worker)).values() for item in items)


def broker_ids(claimed: Claim) -> list[str]:
    return [message.broker_id for message in claimed.entries]


def groups(claims: Sequence[Claim]) -> list[str]:
    return [claimed.lane for claimed in claims]


async def drain(pool: Pool, *, worker: str = "w") -> list[str]:
    """Deliver and ack all that can be claimed now; returns the broker ids in the order they were claimed."""
    delivered: list[str] = []
    while claims := await claim(pool, 100, worker=worker):
        for claimed in claims:
            delivered += broker_ids(claimed)
        answer = await settle(pool, *(settlement(claimed) for claimed in claims), worker=worker)
        assert answer.refused == set()
        assert len(delivered) < 100_000, "it has no end"
    return delivered


class Hearing:
    """What was published on one channel since it was asked last."""

    def __init__(self, stage: Stage, pubsub: Any, channel: str) -> None:
        self._stage = stage
        self._pubsub = pubsub
        self._channel = channel

    async def what_is_still_under_way(self) -> None:
        """In a Cluster, what was published before we subscribed may arrive after."""
        # Under a number, as an earlier test's own words may come late to the node that we ask.
        client, end = self._stage.client, f"from here on {next(_calls)}"
        nodes = client.get_primaries() if isinstance(client, RedisCluster) else [None]
        for node in nodes:
            await client.execute_command("PUBLISH", self._channel, end, **({"target_nodes": node} if node else {}))
        ends = 0
        while ends < len(nodes):
            message = await self._pubsub.get_message(timeout=5)
            assert message is not None, "our own publication did not arrive"
            ends += message["type"] == "message" and message["data"] == end

    async def since(self, key: str) -> list[str]:
        """All that scripts on `key`'s node published so far."""
        # Through a script on that node: what a Cluster's nodes publish reaches a subscriber in order per node.
        end = "the end of what we ask for"
        publish = "redis.call('GET', KEYS[1]); return redis.call('PUBLISH', ARGV[1], ARGV[2])"
        await self._stage.client.eval(publish, 1, f"{key}:none", self._channel, end)
        heard: list[str] = []
        while True:
            message = await self._pubsub.get_message(timeout=5)
            assert message is not None, "our own publication did not arrive"
            if message["type"] != "message":
                continue
            if message["data"] == end:
                return heard
            heard.append(message["data"])

    async def one(self) -> str:
        """The next publication, whichever node it comes from."""
        while True:
            message = await self._pubsub.get_message(timeout=5)
            assert message is not None, "nothing was published"
            if message["type"] == "message":
                return str(message["data"])


@asynccontextmanager
async def hearing(stage: Stage, channel: str) -> AsyncIterator[Hearing]:
    connection = await subscribe_connection(stage.client, stage.url)
    pubsub = connection.pubsub()
    try:
        await pubsub.subscribe(channel)
        heard = Hearing(stage, pubsub, channel)
        await heard.what_is_still_under_way()
        yield heard
    finally:
        await pubsub.aclose()  # type: ignore[no-untyped-call]
        if connection is not stage.client:
            await connection.aclose()
