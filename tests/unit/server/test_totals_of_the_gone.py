"""Labels have an end: what is counted of pools and queues that nobody has any more goes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import fakeredis
import pytest

from fleet.config.router import RouterConfig, canonical, parse_router_config
from fleet.metrics.counters import Counted, Counters
from fleet.server.metrics import forget_what_is_gone
from fleet.state.connect import Client
from fleet.state.registry import Registry
from fleet.state.totals import Tally, totals

CONFIG = parse_router_config(b'{"queues": [{"queueName": "configured", "queueUri": "sqlite:///q.db?queue=q"}]}')
KEPT: Counted = {
    ("pool", "P"): {"SUCCESS": 1},
    ("delivery", "P"): {"3": 1},
    ("wait", "P"): {"3": 1},
    ("queue", "configured"): {"acked": 1},
    ("queue", "draining"): {"acked": 1},
    ("process", "worker"): {"leases_lost": 1},
    ("redis_call", "exchange"): {"3": 1},
}
GONE: Counted = {
    ("pool", "gone"): {"SUCCESS": 1},
    ("delivery", "gone"): {"3": 1},
    ("wait", "gone"): {"3": 1},
    ("queue", "gone"): {"acked": 1},
}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with fakeredis.FakeAsyncRedis(decode_responses=True, server=fakeredis.FakeServer()) as client:
        counters = Counters()
        for key, counts in (KEPT | GONE).items():
            counters.put(*key, counts)
        await Tally(client, "w", counters).tell_all(now_ms=0)
        await publish(client, CONFIG)
        await Registry(client).remember_queue("draining", b"{}")
        yield client


async def publish(client: Client, config: RouterConfig) -> None:
    await Registry(client).publish_config(canonical(config))


async def test_only_what_is_gone_is_forgotten(client: Client) -> None:
    await Registry(client).add_pools({"P"})
    await forget_what_is_gone(client)
    assert await totals(client) == KEPT


async def test_a_redis_without_any_pool_is_one_that_is_not_filled_yet(client: Client) -> None:
    await forget_what_is_gone(client)
    assert await totals(client) == KEPT | GONE
