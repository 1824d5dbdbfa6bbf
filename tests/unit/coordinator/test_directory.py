"""Which configuration a coordinator goes by."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from coordinator.directory import Directory
from fleet.errors import StateUnavailable
from fleet.message import DEFAULT_POOL
from fleet.state.registry import ConfigRevision


def body(*pools: str) -> bytes:
    document = {
        "queues": [{"queueName": "q", "queueUri": "held://q"}],
        "processingPools": [{"code": code} for code in pools],
    }
    return json.dumps(document).encode()


class Registry:
    def __init__(self) -> None:
        self.there = ""
        self.body = b""
        self.away = False
        self.bodies_read = 0

    def publish(self, revision: str, body: bytes) -> None:
        self.there, self.body = revision, body

    async def revision(self) -> str:
        if self.away:
            raise StateUnavailable
        return self.there

    async def config(self) -> ConfigRevision | None:
        self.bodies_read += 1
        return ConfigRevision(self.there, self.body, 0) if self.body else None


class World:
    def __init__(self) -> None:
        self.registry, self.changes = Registry(), 0
        self.directory = Directory(registry=cast(Any, self.registry), look_every_s=60, on_change=self._changed)

    def _changed(self) -> None:
        self.changes += 1


@pytest.fixture
def world() -> World:
    return World()


async def test_the_body_is_read_once_a_revision(world: World) -> None:
    await world.directory.refresh()
    assert (world.directory.revision, world.registry.bodies_read) == ("", 0)
    world.registry.publish("1", body("P"))
    for _ in range(3):
        await world.directory.refresh()
    assert (world.directory.revision, world.registry.bodies_read, world.changes) == ("1", 1, 1)
    assert list(world.directory.queues()) == ["q"]
    world.registry.publish("2", body("Q"))
    await world.directory.refresh()
    assert (world.directory.revision, world.changes) == ("2", 2)
    assert world.directory.pools == {"Q", DEFAULT_POOL}


async def test_a_configuration_that_cannot_be_read_here_leaves_the_last_one_in_force(world: World) -> None:
    world.registry.publish("1", body("P"))
    await world.directory.refresh()
    world.registry.publish("2", b'{"processingPools": 7}')
    await world.directory.refresh()
    assert (world.directory.revision, world.changes) == ("1", 1)
    assert "P" in world.directory.pools
    world.registry.publish("3", body("Q"))
    await world.directory.refresh()
    assert world.directory.revision == "3"


async def test_without_redis_the_last_one_stays_in_force(world: World) -> None:
    world.registry.publish("1", body("P"))
    await world.directory.refresh()
    world.registry.away = True
    await world.directory.refresh()
    assert world.directory.revision == "1"


async def test_a_pool_that_is_not_configured_is_the_default_pool(world: World) -> None:
    world.registry.publish("1", body("P"))
    await world.directory.refresh()
    assert [world.directory.pool_for(code) for code in ("P", "GONE", "")] == ["P", DEFAULT_POOL, DEFAULT_POOL]
