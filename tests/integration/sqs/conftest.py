"""Doors of SQS as processes on one Redis, and clients of both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from tests.integration.sqs.shop import Shop
from tests.servers.local import RedisServer, running_redis
from tests.servers.sqs_door import ClockedDoor, Protocol, SqsDoor, client_of, clocked_door, running_sqs_door


@pytest.fixture(scope="session")
def sqs_redis() -> Iterator[RedisServer]:
    """Never emptied: a door knows what it saw. Tests make queues of their own."""
    with running_redis() as server:
        yield server


@pytest.fixture(scope="session")
def door(sqs_redis: RedisServer) -> Iterator[SqsDoor]:
    with running_sqs_door(sqs_redis.url) as one:
        yield one


@pytest.fixture(scope="session")
def other_door(sqs_redis: RedisServer) -> Iterator[SqsDoor]:
    """On the same queues."""
    with running_sqs_door(sqs_redis.url) as one:
        yield one


@pytest.fixture(scope="session", params=["json", "query"])
def sqs(request: pytest.FixtureRequest, door: SqsDoor) -> Shop:
    """A client of each protocol."""
    return _shop(door.url, cast(Protocol, request.param))


@pytest.fixture(scope="session")
def other(sqs: Shop, other_door: SqsDoor) -> Shop:
    """Of the same protocol, at the other door."""
    return _shop(other_door.url, sqs.protocol)


@pytest.fixture
def clocked(redis_server: RedisServer) -> Iterator[ClockedDoor]:
    """A door whose time a test moves, on an empty Redis."""
    with clocked_door(redis_server.url) as one:
        yield one


@pytest.fixture(params=["json", "query"])
def timed(request: pytest.FixtureRequest, clocked: ClockedDoor) -> Shop:
    """A client of it, of each protocol."""
    return _shop(clocked.url, cast(Protocol, request.param))


def _shop(url: str, protocol: Protocol) -> Shop:
    return Shop(client_of(url, protocol), url, protocol)
