"""Which origins are left alone, and which pools wait behind them, as `fleet status` says it."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.config.router import RouterConfig, parse_router_config
from fleet.operate import behind_breakers
from fleet.operate.behind_breakers import blocked
from fleet.sources.base import Outgoing, Surroundings
from fleet.sources.open import open_publisher
from fleet.state.breakers import SharedBreakers
from fleet.state.connect import Client, connected
from fleet.state.keys import PoolKeys, QueueKeys
from fleet.state.own_queue import OwnQueue
from fleet.state.scripts import SEP
from tests.servers.local import RedisServer
from tests.state.stage import entry

AWAY, OTHER = "http://away.example", "https://other.example:8443"


def router(**queues: str) -> RouterConfig:
    listed = [{"queueName": name, "queueUri": uri} for name, uri in queues.items()]
    return parse_router_config(json.dumps({"queues": listed, "processingPools": [{"code": "A"}]}).encode())


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[Client]:
    """Of a Redis in which one breaker is open."""
    async with connected(redis_server.url) as client:
        await SharedBreakers(client).open(AWAY, "w", for_ms=60_000)
        yield client


async def send(url: str, uri: str, *messages: tuple[str, str]) -> None:
    """Of each its pool and its target."""
    publisher = open_publisher(uri, around=Surroundings(redis_url=url))
    await publisher.open()
    bodies = [{"id": f"m{i}", "poolCode": pool, "mediationTarget": to} for i, (pool, to) in enumerate(messages)]
    outgoing = [Outgoing(body["id"], json.dumps(body).encode(), None) for body in bodies]
    assert not any(await publisher.publish(outgoing))
    await publisher.close()


async def hold(client: Client, code: str, *broker_ids: str, queue: str = "q", target: str = f"{AWAY}/x") -> None:
    for broker_id in broker_ids:
        key, _, _, _, value = replace(entry(broker_id, queue=queue), target=target).fields()
        await client.hset(PoolKeys(code).entries, key, value)


async def test_messages_for_it_are_found_in_queues_that_can_be_looked_into(
    client: Client, redis_server: RedisServer, tmp_path: Path
) -> None:
    uris = {"file": f"sqlite:///{tmp_path}/q.db?queue=file", "own": "fleet://own"}
    for uri in uris.values():
        await send(
            redis_server.url, uri, ("A", f"{AWAY}/a"), ("A", f"{AWAY}:80/b?c=d"), ("GONE", AWAY), ("A", f"{OTHER}/"),
        )  # fmt: skip
    (found,) = await blocked(client, router(**uris), [])
    assert (found.breaker.origin, found.pools, found.is_whole) == (AWAY, {"A": 4, "DEFAULT-POOL": 2}, True)


async def test_what_a_pool_holds_is_counted_once_with_its_queue(client: Client, redis_server: RedisServer) -> None:
    await send(redis_server.url, "fleet://q", ("A", AWAY))
    (broker_id,) = await client.hkeys(OwnQueue(client, "q").keys.bodies)
    await hold(client, "A", broker_id, "of another queue")
    await hold(client, "A", "for another origin", target=f"{OTHER}/")
    (found,) = await blocked(client, router(q="fleet://q"), ["A"])
    assert found.pools == {"A": 2}


async def test_of_many_some_are_looked_at_and_the_numbers_are_at_least(
    client: Client, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(behind_breakers, "_MESSAGES", 5)
    uri = f"sqlite:///{tmp_path}/q.db?queue=q"
    await send(redis_server.url, uri, *[("A", AWAY)] * 9)
    (found,) = await blocked(client, router(q=uri), [])
    assert (found.pools, found.is_whole) == ({"A": 5}, False)


async def test_of_long_messages_fewer_are_looked_at(
    client: Client, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(behind_breakers, "_BODY_BYTES", 200)
    for uri in (f"sqlite:///{tmp_path}/q.db?queue=q", "fleet://own"):
        await send(redis_server.url, uri, *[("A", AWAY)] * 9)
        (found,) = await blocked(client, router(q=uri), [])
        assert 1 <= found.pools["A"] < 9 and not found.is_whole


async def test_of_queues_that_show_no_message_what_was_given_back_is_named_as_perhaps(client: Client) -> None:
    until = (time.time() + 30) * 1000
    await client.zadd(QueueKeys("q").delayed, {SEP.join(("m", "b", "A", "g")): until})
    (found,) = await blocked(client, router(q="nats://h/s/c"), [])
    assert (found.pools, found.perhaps, found.is_whole) == ({}, ("A",), False)


async def test_a_queue_that_cannot_be_read_hides_nothing_else(
    client: Client, redis_server: RedisServer, tmp_path: Path
) -> None:
    (tmp_path / "torn.db").write_bytes(b"no database" * 100)
    await send(redis_server.url, "fleet://own", ("A", AWAY))
    (found,) = await blocked(client, router(torn=f"sqlite:///{tmp_path}/torn.db?queue=q", own="fleet://own"), [])
    assert (found.pools, found.is_whole) == ({"A": 1}, False)


async def test_those_with_the_most_behind_them_come_first(client: Client, redis_server: RedisServer) -> None:
    await SharedBreakers(client).open(OTHER, "w", for_ms=60_000)
    await send(redis_server.url, "fleet://own", ("A", AWAY), ("A", OTHER), ("A", OTHER))
    assert [one.breaker.origin for one in await blocked(client, router(own="fleet://own"), [])] == [OTHER, AWAY]


async def test_without_a_look_behind_them_nothing_is_read_of_pools_and_queues(client: Client) -> None:
    await hold(client, "A", "1")
    (found,) = await blocked(client, router(own="fleet://own"), None)
    told: dict[str, Any] = found.to_json()
    assert (told["origin"], told["state"], told["pools"], told["poolsComplete"]) == (AWAY, "OPEN", {}, False)
