"""Many listeners, one reader."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from fleet.errors import StateUnavailable
from fleet.server import snapshot
from fleet.server.aside import Here
from fleet.server.breakers import BreakerBoard
from fleet.server.depths import Depths
from fleet.server.snapshot import Snapshots
from tests.clocks import HandClock
from tests.unit.server.test_health import WELL


class NoBreakers:
    async def list(self) -> list[dict[str, Any]]:
        return []


class NoWarnings:
    def __init__(self, _client: object) -> None:
        pass

    async def list(self, **_: object) -> list[object]:
        return []


class World:
    """Counts how often Redis is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = 0
        self.away = False
        self.clock = HandClock()

        async def status(*_: object, **__: object) -> object:
            self.reads += 1
            if self.away:
                raise StateUnavailable
            return WELL

        monkeypatch.setattr(snapshot, "status", status)
        monkeypatch.setattr(snapshot, "Warnings", NoWarnings)
        self.snapshots = Snapshots(
            looks=Here(None),
            clock=self.clock,
            depths=cast("Depths", None),
            breakers=cast("BreakerBoard", NoBreakers()),
            every_s=0.01,
        )


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    world = World(monkeypatch)
    yield world
    await world.snapshots.close()


async def next_of(stream: AsyncIterator[bytes]) -> tuple[str, Any]:
    async with asyncio.timeout(5):
        frame = await anext(stream)
    event, data = frame.decode().strip().split("\n")
    return event.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def test_all_who_ask_within_a_second_get_one_reading(world: World) -> None:
    first, *others = await asyncio.gather(*(world.snapshots.latest() for _ in range(20)))
    assert all(other is first for other in others)
    assert world.reads == 1
    world.clock.now_ms += 10
    assert await world.snapshots.latest() is not first


async def test_all_listeners_share_one_reader(world: World) -> None:
    streams = [world.snapshots.events() for _ in range(10)]
    frames = await asyncio.gather(*map(next_of, streams))
    assert {event for event, _ in frames} == {"snapshot"}
    assert len({data["time"] for _, data in frames}) == 1
    assert world.reads == 1
    assert world.snapshots.listeners == 10
    for stream in streams:
        await stream.aclose()  # type: ignore[attr-defined]
    assert world.snapshots.listeners == 0


async def test_nobody_reads_once_nobody_listens(world: World) -> None:
    stream = world.snapshots.events()
    await next_of(stream)
    reader = world.snapshots._reader
    assert reader is not None
    await stream.aclose()  # type: ignore[attr-defined]
    await asyncio.wait([reader], timeout=5)
    assert reader.done()
    # And who comes then is not given what was true long ago.
    world.clock.now_ms += 60_000
    reads = world.reads
    await next_of(world.snapshots.events())
    assert world.reads == reads + 1


async def test_a_listener_that_does_not_read_holds_up_nobody(world: World) -> None:
    slow, quick = world.snapshots.events(), world.snapshots.events()
    await next_of(slow)
    for _ in range(5):
        await next_of(quick)
    await next_of(slow)


async def test_listeners_hear_that_redis_is_away_and_that_it_is_back(world: World) -> None:
    stream = world.snapshots.events()
    assert (await next_of(stream))[0] == "snapshot"
    world.clock.now_ms += 1000
    world.away = True
    assert (await next_of(stream)) == ("away", {"error": "Redis cannot be reached"})
    world.away = False
    while (await next_of(stream))[0] == "away":
        pass


async def test_without_redis_health_is_an_answer_and_no_error(world: World) -> None:
    world.away = True
    assert (await world.snapshots.health()).status == "DEGRADED"


async def test_a_server_that_stops_ends_every_stream(world: World) -> None:
    stream = world.snapshots.events()
    await next_of(stream)
    await world.snapshots.close()
    with pytest.raises(StopAsyncIteration):
        async with asyncio.timeout(5):
            await anext(stream)
