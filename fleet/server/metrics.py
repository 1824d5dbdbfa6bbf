"""The fleet's metrics, made from Redis and from what its processes counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from fleet.broker.core import Broker
from fleet.broker.counts import SUBSCRIPTION, TOPIC
from fleet.broker.sqs.catalogue import Queues
from fleet.broker.sqs.look import tokens
from fleet.jobs.due import Due
from fleet.metrics.broker import MOST_LABELS, OTHERS, Standing, add_broker
from fleet.metrics.broker import labels as labels_of
from fleet.metrics.counted import HISTOGRAMS, add_counted
from fleet.metrics.counters import Counted
from fleet.metrics.exposition import Exposition
from fleet.metrics.sqs import QUEUE, add_sqs
from fleet.operate import views
from fleet.operate.views import AskDepths
from fleet.server.aside import Looks
from fleet.server.breakers import BreakerBoard
from fleet.server.depths import Depths
from fleet.state import observe, present
from fleet.state.connect import Client
from fleet.state.look import Looked, look
from fleet.state.registry import ConfigRevision, Registry
from fleet.state.totals import forget, labels, totals
from fleet.state.warnings import Warnings

_POOL_KINDS = frozenset({"pool", *(kind for kind, (_, label, _) in HISTOGRAMS.items() if label == "pool")})


async def exposition(looks: Looks, *, depths: Depths, breakers: BreakerBoard, due: Due | None) -> bytes:
    async def page(client: Client) -> bytes:
        board = looks.at_home(breakers.list)
        return await _page(client, depths=looks.at_home(depths), breakers=board, due=due)

    return await looks.ask(page)


async def _page(
    client: Client, *, depths: AskDepths, breakers: Callable[[], Awaitable[list[dict[str, Any]]]], due: Due | None
) -> bytes:
    page = Exposition()
    counted = await totals(client)
    registry = Registry(client)
    looked = await look(client, sorted(await registry.pools()))
    pools = [pool for pool in looked if pool.exists]
    records = await present.processes(client)
    config, router = await views.configuration(client)
    queues = await views.queues_now(client, router, depths=depths, records=records, counted=counted)
    add_counted(
        page,
        counted,
        pools={pool.code for pool in pools},
        queues={queue.view.name for queue in queues},
    )
    # One that never had a message has none of these lines. Nothing goes away that was there before.
    _pools(page, [pool for pool in pools if pool.messages or ("wait", pool.code) in counted])
    concurrency = ((pool.code, int(pool.settings["concurrency"])) for pool in pools)
    page.of_each("fleet_pool_concurrency", "gauge", "Deliveries at a time, at most.", "pool", {"": concurrency})
    _queues(page, queues)
    await _processes(page, client, records, queues)
    _feed(page, due)
    await _broker(page, client, counted)
    await _sqs(page, client, counted)
    await _rest(page, client, config, await breakers())
    return page.text().encode()


def _pools(page: Exposition, pools: list[Looked]) -> None:
    gauges = {
        "queued": ("Messages that wait.", [max(0, pool.messages - pool.leases) for pool in pools]),
        "active": ("Deliveries under way.", [pool.leases for pool in pools]),
        "groups": ("Groups with messages.", [pool.leases + pool.ready + pool.later for pool in pools]),
    }
    for name, (about, values) in gauges.items():
        samples = zip((pool.code for pool in pools), values, strict=True)
        page.of_each(f"fleet_pool_{name}", "gauge", about, "pool", {"": samples})


def _queues(page: Exposition, queues: list[views.QueueNow]) -> None:
    tracked = [({"queue": queue.view.name}, queue.view.tracked) for queue in queues]
    page.family("fleet_queue_tracked", "gauge", "Messages taken and not acknowledged yet.", tracked)
    # A queue that does not say how old its oldest message is has no sample: 0 would be a lie.
    oldest = [
        ({"queue": queue.view.name}, queue.depth.oldest_s)
        for queue in queues
        if queue.depth is not None and queue.depth.oldest_s is not None
    ]
    page.family("fleet_queue_oldest_seconds", "gauge", "Age of the oldest message at the source.", oldest)


def _feed(page: Exposition, due: Due | None) -> None:
    # No sample if it is not known: 0 would say that all is well.
    jobs: list[tuple[dict[str, str], float]] = [] if due is None else [({}, due.jobs)]
    oldest: list[tuple[dict[str, str], float]] = [] if due is None else [({}, due.oldest_s)]
    page.family("fleet_feed_due_jobs", "gauge", "Jobs that are due and not published.", jobs)
    page.family("fleet_feed_oldest_due_seconds", "gauge", "For how long the first of them has been due.", oldest)


async def _processes(
    page: Exposition, client: Client, records: list[dict[str, Any]], queues: list[views.QueueNow]
) -> None:
    roles = Counter(str(record.get("role")) for record in records)
    page.family(
        "fleet_processes", "gauge", "Processes that live.", [({"role": r}, n) for r, n in sorted(roles.items())]
    )
    leader = await observe.leader(client)
    page.family("fleet_leader", "gauge", "1 while a coordinator leads.", [({}, int(bool(leader.owner)))])
    feeds = await observe.feed_leader(client)
    page.family("fleet_feed_leader", "gauge", "1 while a driver of the feed leads.", [({}, int(bool(feeds.owner)))])
    epochs: dict[str, int] = {"leader": int(leader.epoch or 0), "feed": int(feeds.epoch or 0)}
    epochs["syncer"] = int((await observe.syncer_leader(client)).epoch or 0)
    owners = await observe.owners(client, [queue.view.name for queue in queues])
    epochs["queue"] = max((int(owner.epoch or 0) for owner in owners), default=0)
    page.family(
        "fleet_lease_epoch", "gauge", "The highest epoch granted.", [({"kind": k}, e) for k, e in epochs.items()]
    )


async def _broker(page: Exposition, client: Client, counted: Counted) -> None:
    broker = Broker(client)
    topics = [topic.name for topic in await broker.get_all_topics()]
    subscriptions = sorted(one.name for one in await broker.get_all_subscriptions())
    # Each costs a call: no more than have a label.
    depths = await broker.all_depths(subscriptions[:MOST_LABELS])
    standings = {
        name: Standing(found.messages, found.out, found.moving, found.oldest_ms / 1000)
        for name, found in depths.items()
    }
    add_broker(page, counted, topics=topics, subscriptions=subscriptions, standings=standings)


async def _sqs(page: Exposition, client: Client, counted: Counted) -> None:
    queues = await Queues(client).all()
    # Each costs a call: no more than have a label.
    shown = {name: queues[name] for name, label in labels_of(queues).items() if label != OTHERS}
    add_sqs(page, counted, queues=queues, tokens=await tokens(client, shown))


async def _rest(
    page: Exposition, client: Client, config: ConfigRevision | None, breakers: list[dict[str, Any]]
) -> None:
    is_open = [({"origin": str(breaker["origin"])}, 1) for breaker in breakers]
    page.family("fleet_breaker_open", "gauge", "1 for each breaker that is not closed.", is_open)
    # No sample if there is none: an age of 0 would say that all is well.
    age: list[tuple[dict[str, str], float]] = []
    if config is not None:
        age.append(({}, max(0.0, (await Registry(client).clock_ms() - config.checked_ms) / 1000)))
    page.family("fleet_config_age_seconds", "gauge", "Since the syncer last confirmed the configuration.", age)
    severities = Counter(warning.severity for warning in await Warnings(client).list(unacknowledged=True))
    samples = [({"severity": s}, severities[s]) for s in ("CRITICAL", "ERROR", "WARN", "INFO")]
    page.family("fleet_warnings", "gauge", "Warnings that nobody has acknowledged.", samples)


async def forget_what_is_gone(client: Client) -> None:
    """Forget the totals of pools and queues that nobody has any more."""
    registry = Registry(client)
    # Read what was counted first: a pool that is created in between must not look like one that is gone.
    counted = {kind: await labels(client, kind) for kind in (*_POOL_KINDS, "queue")}
    pools = await registry.pools()
    queues = await registry.queues()
    queues_known = set(queues) | {queue.name for queue in (await views.configuration(client))[1].queues}
    if not pools:
        # Redis is new, or wiped: the syncer will be back.
        return
    for kind, found in counted.items():
        await forget(client, kind, found - (queues_known if kind == "queue" else pools))


async def forget_what_the_broker_lost(client: Client) -> None:
    """Likewise of topics, subscriptions and queues of the SQS door."""
    counted = {kind: await labels(client, kind) for kind in (TOPIC, SUBSCRIPTION, QUEUE)}
    if not any(counted.values()):
        return
    broker = Broker(client)
    there = {
        TOPIC: {one.name for one in await broker.get_all_topics()},
        SUBSCRIPTION: {one.name for one in await broker.get_all_subscriptions()},
        QUEUE: {OTHERS, *await Queues(client).names()},
    }
    for kind, names in counted.items():
        await forget(client, kind, names - there[kind])
