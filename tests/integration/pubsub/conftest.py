"""A Pub/Sub door as a process on a Redis of its own, and Google's client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.local import RedisServer, running_redis
from tests.servers.pubsub_door import Google, PubsubDoor, running_pubsub_door


@pytest.fixture(scope="session")
def pubsub_redis() -> Iterator[RedisServer]:
    """Never emptied: a door knows what it saw. Tests make topics of their own."""
    with running_redis() as server:
        yield server


@pytest.fixture(scope="session")
def door(pubsub_redis: RedisServer) -> Iterator[PubsubDoor]:
    with running_pubsub_door(pubsub_redis.url) as one:
        yield one


@pytest.fixture(scope="session")
def google(door: PubsubDoor) -> Iterator[Google]:
    client = Google(door.address)
    yield client
    client.close()
