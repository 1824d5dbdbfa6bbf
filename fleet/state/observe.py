"""The fleet as an onlooker sees it: read-only, in a few round trips whatever the numbers, never by `KEYS`.

What Redis holds is exact at the moment it was read. Counts of what was done are as old as the last heartbeats, and
go on whichever process ends.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fleet.metrics.counters import Counts, Key
from fleet.state.connect import Client, translated
from fleet.state.keys import FleetKeys, PoolKeys, QueueKeys
from fleet.state.look import look
from fleet.state.pool import PoolSettings
from fleet.state.queue import Queue, Tracked
from fleet.state.registry import NEARLY_FULL, Registry
from fleet.state.scripts import SEP
from fleet.state.totals import totals
from fleet.state.tracked import brokers_of

_AT_ONCE = 500
"""Pools or messages asked for in one round trip."""


@dataclass(frozen=True, slots=True)
class PoolView:
    code: str
    settings: PoolSettings
    paused: bool
    messages: int
    """Messages in the pool, queued or under way."""
    leases: int
    """Lanes that a worker delivers now."""
    ready: int
    """Lanes that wait for a worker."""
    later: int
    """Lanes that wait for a time."""
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def state(self) -> str:
        if self.settings.draining:
            return "draining"
        return "paused" if self.paused else "open"


@dataclass(frozen=True, slots=True)
class LeaseView:
    """One lease as Redis judges it now; owner is '' if no process holds it."""

    owner: str
    epoch: str


@dataclass(frozen=True, slots=True)
class QueueView:
    name: str
    owner: str
    tracked: int
    settled: int
    dead: int
    counts: Counter[str] = field(default_factory=Counter)
    acked_a_second: float = 0.0
    """By the processes that live, since each of them began."""


@dataclass(frozen=True, slots=True)
class InFlight:
    queue: str
    message: Tracked
    state: str


async def pool_settings(client: Client, codes: Sequence[str]) -> dict[str, PoolSettings]:
    """The settings of these pools, of those that have any."""
    return {code: view.settings for code, view in (await _pools(client, codes)).items()}


async def secrets_of(client: Client, codes: Sequence[str]) -> dict[str, tuple[str, str]]:
    """What these pools sign with: the secret, and the file that it is in; '' for what a pool does not have."""
    if not codes:
        return {}
    pipeline = client.pipeline(transaction=False)
    for code in codes:
        pipeline.hmget(PoolKeys(code).settings, ["secret", "secret_file"])
    with translated():
        answers = await pipeline.execute()
    return {code: (secret or "", file or "") for code, (secret, file) in zip(codes, answers, strict=True)}


async def pools(client: Client) -> list[PoolView]:
    """Every pool that exists, configured or draining, by its code."""
    found = await _pools(client, sorted(await Registry(client).pools()))
    counted = await totals(client, ["pool"])
    for code, view in found.items():
        view.outcomes.update(counted.get(("pool", code), {}))
    return list(found.values())


async def _pools(client: Client, codes: Sequence[str]) -> dict[str, PoolView]:
    return {
        one.code: PoolView(
            one.code, _settings(one.settings), "paused" in one.settings, one.messages, one.leases, one.ready, one.later
        )
        for one in await look(client, codes)
        if one.exists
    }


def _settings(stored: dict[str, str]) -> PoolSettings:
    return PoolSettings(
        concurrency=int(stored["concurrency"]),
        capacity=int(stored["capacity"]),
        rate_limit_per_minute=int(stored["rate"]) if "rate" in stored else None,
        on_failure=stored["on_failure"],
        draining="draining" in stored,
        park_after=int(stored.get("park_after", "10")),
        secret=stored.get("secret", ""),
        secret_file=stored.get("secret_file", ""),
    )


async def leader(client: Client) -> LeaseView:
    return (await _leases(client, [FleetKeys.leader]))[0]


async def syncer_leader(client: Client) -> LeaseView:
    return (await _leases(client, [FleetKeys.syncer]))[0]


async def feed_leader(client: Client) -> LeaseView:
    return (await _leases(client, [FleetKeys.feed]))[0]


async def owners(client: Client, queue_names: Sequence[str]) -> list[LeaseView]:
    return await _leases(client, [QueueKeys(name).owner for name in queue_names])


async def _leases(client: Client, keys: Sequence[str]) -> list[LeaseView]:
    with translated():
        # Redis judges, by its clock: the holder may be on another machine with another time.
        now = await client.time()
    now_ms = now[0] * 1000 + now[1] // 1000
    views: list[LeaseView] = []
    for first in range(0, len(keys), _AT_ONCE):
        pipeline = client.pipeline(transaction=False)
        for key in keys[first : first + _AT_ONCE]:
            pipeline.hmget(key, ["owner", "epoch", "deadline"])
        with translated():
            answers = await pipeline.execute()
        for owner, epoch, deadline in answers:
            held = bool(owner) and int(deadline or 0) > now_ms
            views.append(LeaseView(owner if held else "", epoch or ""))
    return views


async def queues(
    client: Client,
    names: Sequence[str],
    *,
    records: Sequence[Mapping[str, Any]] | None = None,
    counted: Mapping[Key, Counts] | None = None,
) -> list[QueueView]:
    """These queues, as Redis knows them. How deep they are, only their sources know.

    `records`: those of the processes that live; `counted`: the totals. Pass them if they were read already.
    """
    keys = [QueueKeys(name) for name in names]
    leases = await owners(client, names)
    sizes: list[int] = []
    for first in range(0, len(keys), _AT_ONCE):
        pipeline = client.pipeline(transaction=False)
        for k in keys[first : first + _AT_ONCE]:
            pipeline.hlen(k.tracked)
            pipeline.llen(k.settled)
            pipeline.llen(k.dead)
        with translated():
            sizes += await pipeline.execute()
    if counted is None:
        counted = await totals(client, ["queue"])
    counts = {name: Counter(counted.get(("queue", name), {})) for name in names}
    rates = dict.fromkeys(names, 0.0)
    for record in await Registry(client).processes() if records is None else records:
        for name, of_record in record.get("counts", {}).items():
            if name in counts and isinstance(of_record, dict):
                rates[name] += of_record.get("acked", 0) / max(age_s(str(record.get("startedAt", ""))), 1.0)
    return [
        QueueView(name, owner.owner, tracked, settled, dead, counts[name], rates[name])
        for name, owner, tracked, settled, dead in zip(
            names, leases, sizes[0::3], sizes[1::3], sizes[2::3], strict=True
        )
    ]


async def in_flight(client: Client, queue_names: Sequence[str]) -> AsyncIterator[list[InFlight]]:
    """Every tracked message of these queues, some hundred at a time."""
    for name in queue_names:
        async for page in Queue(client, name).all_tracked():
            if page:
                yield await _with_states(client, name, page)


async def in_flight_by_id(client: Client, queue_names: Sequence[str], message_id: str) -> list[InFlight]:
    """Where a message is tracked; one id may be under way from several queues."""
    found: list[InFlight] = []
    for name, broker_id in (await brokers_of(client, queue_names, message_id)).items():
        if broker_id is not None:
            page = [one for one in await Queue(client, name).tracked([broker_id]) if one is not None]
            found += await _with_states(client, name, page)
    return found


async def _with_states(client: Client, queue: str, page: list[Tracked]) -> list[InFlight]:
    pipeline = client.pipeline(transaction=False)
    for message in page:
        keys = PoolKeys(message.pool)
        pipeline.zscore(keys.leases, message.lane)
        pipeline.hexists(keys.entries, _entry_key(queue, message.broker_id))
    with translated():
        answers = await pipeline.execute()
    return [
        InFlight(queue, message, _state(message, leased=answers[2 * i] is not None, queued=bool(answers[2 * i + 1])))
        for i, message in enumerate(page)
    ]


def _state(message: Tracked, *, leased: bool, queued: bool) -> str:
    if message.state != "t":
        # Settled in Redis; its queue's owner has not told the source yet.
        return "ACKING" if message.state == "a" else "NACKING"
    if not queued:
        return "TRACKED"
    return "PROCESSING" if leased else "QUEUED"


def _entry_key(queue: str, broker_id: str) -> str:
    return f"{queue}{SEP}{broker_id}"


@dataclass(frozen=True, slots=True)
class ServerView:
    version: str
    policy: str
    used_bytes: int
    max_bytes: int

    @property
    def is_nearly_full(self) -> bool:
        return bool(self.max_bytes) and self.used_bytes > NEARLY_FULL * self.max_bytes


async def servers(client: Client) -> list[ServerView]:
    """Every node of the Redis in use: one, or a Cluster's."""
    with translated():
        info = await client.info()
    nodes: list[dict[str, Any]] = [info] if "redis_version" in info else list(info.values())
    return [
        ServerView(
            version=str(node.get("valkey_version") or node.get("redis_version", "?")),
            policy=str(node.get("maxmemory_policy", "")),
            used_bytes=int(node.get("used_memory", 0)),
            max_bytes=int(node.get("maxmemory", 0)),
        )
        for node in nodes
    ]


async def clock_offset_ms(client: Client) -> float:
    """How far Redis's clock is ahead of ours, give or take half a round trip."""
    before = time.time()
    with translated():
        seconds, micros = await client.time()
    return float((seconds + micros / 1e6) * 1000 - (before + time.time()) * 500)


def age_s(iso: str) -> float:
    """Seconds since a time as the registry writes it."""
    try:
        return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(iso)).total_seconds())
    except ValueError:
        return 0.0
