"""Publishing a configuration into a real Redis."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from typing import Any

import pytest

from coordinator.syncer.publish import RevisionPublisher
from fleet.config.router import RouterConfig, parse_router_config
from fleet.errors import StateUnavailable
from fleet.state.connect import Client, connected
from fleet.state.keys import FleetKeys, PoolKeys
from fleet.state.observe import pool_settings
from fleet.state.registry import Registry
from tests.servers.local import RedisServer


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[Client]:
    async with connected(redis_server.url) as client:
        yield client


def config(*codes: str, **fields: Any) -> RouterConfig:
    return parse_router_config(json.dumps({"processingPools": [{"code": code, **fields} for code in codes]}).encode())


async def test_pools_have_their_settings_before_anybody_hears_of_the_revision(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[set[str]] = []

    async def announce(registry: Registry) -> None:
        heard.append(set(await pool_settings(client, sorted(await registry.pools()))))

    monkeypatch.setattr(Registry, "announce_config", announce)
    await RevisionPublisher(client=client).publish(config(*(f"P{i}" for i in range(250))))
    assert heard == [{"DEFAULT-POOL", *(f"P{i}" for i in range(250))}]


async def test_publishing_the_same_again_changes_and_announces_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced = []

    async def announce(_registry: Registry) -> None:
        announced.append(1)

    monkeypatch.setattr(Registry, "announce_config", announce)
    one, other = RevisionPublisher(client=client), RevisionPublisher(client=client)
    revision = await one.publish(config("A"))
    assert [await one.publish(config("A")), await other.publish(config("A"))] == [revision, revision]
    assert await one.publish(config("A")) == revision
    # The other one cannot know that the pools are complete, and makes sure once.
    assert len(announced) == 2


async def test_a_pool_that_is_gone_drains_with_its_last_settings(client: Client) -> None:
    publisher = RevisionPublisher(client=client)
    await publisher.publish(config("A", "B", concurrency=7, rateLimitPerMinute=60))
    await publisher.publish(config("A"))
    found = await pool_settings(client, ["A", "B"])
    assert (found["A"].concurrency, found["A"].draining) == (1, False)
    assert (found["B"].concurrency, found["B"].rate_limit_per_minute, found["B"].draining) == (7, 60, True)


async def test_a_wiped_redis_is_configured_again(client: Client) -> None:
    publisher = RevisionPublisher(client=client)
    before = await publisher.publish(config("A"))
    await client.flushall()
    after = await publisher.publish(config("A"))
    assert int(after) > int(before)
    assert set(await pool_settings(client, ["A"])) == {"A"}
    assert await Registry(client).pools() == {"A", "DEFAULT-POOL"}


async def test_pools_that_redis_forgot_are_configured_again(client: Client) -> None:
    """As by a failover that lost the last writes, or on a node of a Cluster that came back empty."""
    publisher, many = RevisionPublisher(client=client), config(*(f"P{i:03}" for i in range(150)))
    await publisher.publish(many)
    await client.delete(PoolKeys("P001").settings, PoolKeys("P149").settings)
    await client.hdel(FleetKeys.pool_marks, "P002")
    older = str(int(await Registry(client).revision()) - 1)
    await client.hset(PoolKeys("P003").settings, "revision", older)
    for _ in range(2):
        await publisher.publish(many)  # some of them a second
    known = await Registry(client).known_under(await Registry(client).revision(), [p.code for p in many.pools])
    assert len(known) == len(many.pools) == 151
    assert await client.hget(FleetKeys.pool_marks, "P002") is not None


@pytest.mark.parametrize("by", ["1", "0.5"], ids=["newer", "by-hand"])
async def test_a_look_at_what_the_pools_have_repairs_nothing_that_is_newer(
    client: Client, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    publisher = RevisionPublisher(client=client)
    revision = await publisher.publish(config("A"))
    await client.hset(PoolKeys("A").settings, "revision", str(Decimal(revision) + Decimal(by)))

    async def again(*_: Any) -> None:
        raise AssertionError("configured again")

    monkeypatch.setattr(RevisionPublisher, "_configure", again)
    assert await publisher.publish(config("A")) == revision


async def test_a_removed_pool_that_redis_forgot_to_drain_drains_again(client: Client) -> None:
    publisher = RevisionPublisher(client=client)
    await publisher.publish(config("A", "GONE"))
    revision = await publisher.publish(config("A"))
    assert (await pool_settings(client, ["GONE"]))["GONE"].draining
    await client.hdel(PoolKeys("GONE").settings, "draining")
    for _ in range(2):
        assert await publisher.publish(config("A")) == revision
    assert (await pool_settings(client, ["GONE"]))["GONE"].draining


async def test_while_a_node_is_away_pools_of_others_are_repaired(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = RevisionPublisher(client=client)
    await publisher.publish(config("AWAY", "HERE"))
    await client.delete(PoolKeys("HERE").settings)
    real = Registry.known_under

    async def of_nodes_that_answer(registry: Registry, revision: str, codes: Sequence[str]) -> set[str]:
        if "AWAY" in codes:
            raise StateUnavailable
        return await real(registry, revision, codes)

    monkeypatch.setattr(Registry, "known_under", of_nodes_that_answer)
    await publisher.publish(config("AWAY", "HERE"))
    assert await client.exists(PoolKeys("HERE").settings)
