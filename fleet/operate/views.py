"""The fleet in the public JSON shapes (camelCase), for the CLI and everything else that shows it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.config.router import QueueConfig, RouterConfig, parse_router_config
from fleet.errors import FleetError
from fleet.metrics.counters import Counts, Key
from fleet.sources.base import Depth
from fleet.sources.open import open_source
from fleet.state import observe, present
from fleet.state.connect import Client
from fleet.state.observe import InFlight, PoolView, QueueView
from fleet.state.registry import ConfigRevision, Registry
from fleet.words import unnamed, utc

_DEPTH_WITHIN_S = 5.0
_SOURCES_AT_ONCE = 16
_PROCESS_FIELDS = ("role", "name", "pid", "host", "startedAt", "queues", "pools", "epoch")

DepthNow = tuple[Depth | None, str]
AskDepths = Callable[[Sequence[QueueConfig]], Awaitable[list[DepthNow]]]


@dataclass(frozen=True, slots=True)
class QueueNow:
    """A queue by Redis and by its source; `depth` is None if the source did not say, and `error` says why."""

    view: QueueView
    depth: Depth | None
    error: str = ""


async def configuration(client: Client) -> tuple[ConfigRevision | None, RouterConfig]:
    found = await Registry(client).config()
    return found, parse_router_config(found.body) if found is not None else RouterConfig()


# Processes -----------------------------------------------------------------------------------------


async def processes_json(client: Client) -> list[dict[str, Any]]:
    """Every process that lives. What it owns and whether it leads is taken from the leases: they are up to date."""
    leader, owned = await observe.leader(client), await _owned(client)
    rows = []
    for record in await present.processes(client):
        row = {field: record.get(field) for field in _PROCESS_FIELDS}
        row["queues"] = owned.get(str(row["name"]), [])
        row["epoch"] = leader.epoch if row["name"] == leader.owner else ""
        rows.append(row)
    return rows


async def _owned(client: Client) -> dict[str, list[str]]:
    """Queues by their owner."""
    names = sorted(queue.name for queue in (await configuration(client))[1].queues)
    owned: dict[str, list[str]] = {}
    for name, lease in zip(names, await observe.owners(client, names), strict=True):
        if lease.owner:
            owned.setdefault(lease.owner, []).append(name)
    return owned


def workers_json(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for record in records:
        if record.get("role") != "worker":
            continue
        outcomes = record.get("outcomes", {})
        done, failed = outcomes.get("SUCCESS", 0), _failed(outcomes)
        seconds = observe.age_s(str(record.get("startedAt", "")))
        rows.append(
            {
                **{field: record.get(field) for field in ("name", "pid", "host", "startedAt", "pools")},
                "inFlight": record.get("inFlight", 0),
                "totalSucceeded": done,
                "totalFailed": failed,
                "throughput": round(done / seconds, 1) if seconds else 0.0,
                "leasesLost": record.get("counts", {}).get("leases_lost", 0),
                "redisAvailable": record.get("redisAvailable", True),
            }
        )
    return rows


async def leader_json(client: Client) -> dict[str, Any]:
    """The standby-status of the process that leads; of nobody if none does."""
    lease = await observe.leader(client)
    owned = await _owned(client)
    return {
        "instanceId": lease.owner or None,
        "role": "PRIMARY" if lease.owner else "STANDBY",
        "leader": lease.owner or None,
        "epoch": lease.epoch if lease.owner else None,
        "ownedQueues": owned.get(lease.owner, []),
        "redisAvailable": True,
    }


async def consumers_json(client: Client) -> dict[str, dict[str, Any]]:
    """Who reads each queue. A consumer is healthy if a living coordinator owns its queue and does not call it stuck.

    A coordinator calls a consumer stuck when it has neither polled nor waited for room for a minute; one that has just
    begun is well.
    """
    names = sorted(queue.name for queue in (await configuration(client))[1].queues)
    records = {str(record["name"]): record for record in await present.processes(client)}
    rows: dict[str, dict[str, Any]] = {}
    for name, lease in zip(names, await observe.owners(client, names), strict=True):
        record = records.get(lease.owner)
        idle_ms = record.get("polls", {}).get(name) if record else None
        rows[name] = {
            "queueId": name,
            "owner": lease.owner or None,
            "host": record.get("host") if record else None,
            "isRunning": record is not None,
            "isHealthy": record is not None and name not in record.get("stuck", ()),
            "msSinceLastPoll": idle_ms,
        }
    return rows


# Pools ---------------------------------------------------------------------------------------------


def pool_json(pool: PoolView) -> dict[str, Any]:
    done, failed = pool.outcomes["SUCCESS"], _failed(pool.outcomes)
    # What comes again is neither, and was processed all the same.
    total = done + failed + pool.outcomes["ERROR_PROCESS"]
    return {
        "poolCode": pool.code,
        "totalProcessed": total,
        "totalSucceeded": done,
        "totalFailed": failed,
        "totalRateLimited": pool.outcomes["RATE_LIMITED"],
        "successRate": _rate(done, failed),
        "activeWorkers": pool.leases,
        "availablePermits": max(0, pool.settings.concurrency - pool.leases),
        "maxConcurrency": pool.settings.concurrency,
        # What is under way left the queue in every sense but that of Redis.
        "queueSize": max(0, pool.messages - pool.leases),
        "maxQueueCapacity": pool.settings.capacity,
        "averageProcessingTimeMs": round(pool.outcomes["ms"] / total, 2) if total else 0.0,
    }


def came_back(pool: PoolView) -> int:
    """Deliveries after which the message comes again: not failures by the seeds, but to people hardly anything else."""
    return sum(pool.outcomes[name] for name in ("ERROR_PROCESS", "NOT_SENT"))


def _failed(outcomes: dict[str, int]) -> int:
    return sum(outcomes.get(name, 0) for name in ("ERROR_CONFIG", "ERROR_CONNECTION"))


def _rate(good: int, bad: int) -> float:
    return round(good / (good + bad), 4) if good + bad else 1.0


# Queues --------------------------------------------------------------------------------------------


async def queue_depths(queues: Sequence[QueueConfig]) -> list[DepthNow]:
    """How deep the sources are, all asked at once; for one that did not say, why."""
    gate = asyncio.Semaphore(_SOURCES_AT_ONCE)
    return list(await asyncio.gather(*(_depth(queue, gate) for queue in queues)))


async def queues_now(
    client: Client,
    config: RouterConfig,
    *,
    depths: AskDepths = queue_depths,
    records: Sequence[Mapping[str, Any]] | None = None,
    counted: Mapping[Key, Counts] | None = None,
) -> list[QueueNow]:
    """`records`, `counted`: as `observe.queues` takes them."""
    queues = sorted(config.queues, key=lambda queue: queue.name)
    if records is None:
        records = await present.processes(client)
    views = await observe.queues(client, [queue.name for queue in queues], records=records, counted=counted)
    return [QueueNow(view, depth, error) for view, (depth, error) in zip(views, await depths(queues), strict=True)]


async def _depth(queue: QueueConfig, gate: asyncio.Semaphore) -> DepthNow:
    async with gate:
        try:
            source = open_source(queue.name, queue.uri, queue.visibility_timeout_s * 1000)
            async with asyncio.timeout(_DEPTH_WITHIN_S):
                await source.open()
                try:
                    return await source.depth(), ""
                finally:
                    await source.close()
        except TimeoutError:
            return None, f"its source did not answer within {_DEPTH_WITHIN_S:g} s"
        except FleetError as error:
            return None, unnamed(queue.name, str(error))


def queue_json(queue: QueueNow) -> dict[str, Any]:
    counts, view = queue.view.counts, queue.view
    # What has an outcome or is under way was taken, even if its coordinator was killed before it could say so.
    known = counts["acked"] + counts["nacked"] + counts["refused"] + counts["malformed"] + view.tracked
    return {
        "name": view.name,
        "totalMessages": max(counts["received"], known),
        "totalConsumed": counts["acked"],
        "totalFailed": counts["nacked"],
        "successRate": _rate(counts["acked"], counts["nacked"]),
        "currentSize": view.tracked,
        "throughput": round(view.acked_a_second, 1),
        "pendingMessages": queue.depth.waiting if queue.depth else None,
        "messagesNotVisible": queue.depth.invisible if queue.depth else None,
        "totalDeferred": counts["refused"],
    }


# Messages in flight --------------------------------------------------------------------------------


async def in_flight_json(
    client: Client, queue_names: list[str], *, pool: str | None = None, limit: int = 0
) -> AsyncIterator[dict[str, Any]]:
    """Tracked messages, in no particular order; `limit` 0 for all."""
    now_ms = time.time() * 1000
    shown = 0
    async for page in observe.in_flight(client, queue_names):
        for item in page:
            if pool is None or item.message.pool == pool:
                yield _in_flight(item, now_ms)
                shown += 1
                if shown == limit:
                    return


async def in_flight_of_message_json(
    client: Client, queue_names: Sequence[str], message_id: str
) -> list[dict[str, Any]]:
    now_ms = time.time() * 1000
    return [_in_flight(item, now_ms) for item in await observe.in_flight_by_id(client, queue_names, message_id)]


def _in_flight(item: InFlight, now_ms: float) -> dict[str, Any]:
    message = item.message
    return {
        "messageId": message.message_id,
        "brokerMessageId": message.broker_id,
        "queueId": item.queue,
        "poolCode": message.pool,
        # A message that asks for no order has a lane of its own, which is nobody's group.
        "messageGroupId": message.lane if message.lane.isprintable() else None,
        "addedToInPipelineAt": utc(message.tracked_ms),
        "elapsedTimeMs": max(0, round(now_ms - message.tracked_ms)),
        "state": item.state,
    }
