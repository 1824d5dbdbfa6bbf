"""What the rules of seed 001 are asked of.

`message_queue`
    A `fleet.broker.MessageQueue` on a Redis without keys, closed after the test. Parametrised by what is below it.

`get_instance`
    `MessageQueue.get_instance`, with FLEET_REDIS_URL naming the Redis of `message_queue`. The instance is closed and
    forgotten after the test, so that each test sees the first call.

`wait(seconds)`
    Moves by hand the clock that judges deadlines, backoffs and retention, and sleeps not a moment. Before it returns it
    does what would be done in the background by then: dead letters are brought, and what is too old is dropped.

`stored()`
    What the broker keeps in Redis: by key, how many entries it has (a string counts as one). Two of them compared show
    what an operation leaves behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import fakeredis
import pytest

from fleet.broker import core
from fleet.broker.queue import MessageQueue
from fleet.state.keys import BrokerKeys, FleetKeys
from tests.clocks import HandClock

_ENTRIES = {"hash": "hlen", "zset": "zcard", "list": "llen", "set": "scard"}


@pytest.fixture(params=["fakeredis", "server", "cluster"])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "fakeredis":
        server = fakeredis.FakeServer()

        async def connect(_: str) -> Any:
            return fakeredis.FakeAsyncRedis(decode_responses=True, server=server)

        monkeypatch.setattr(core, "connect", connect)
        return "redis://127.0.0.1:1/0"
    server = request.getfixturevalue("redis_server" if request.param == "server" else "redis_cluster")
    return str(server.url)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(time.time_ns() // 1_000_000)


@pytest.fixture
def message_queue(url: str, clock: HandClock) -> Iterator[MessageQueue]:
    with MessageQueue(url=url) as queue:
        _go_by(clock, queue)
        yield queue


@pytest.fixture
def get_instance(
    url: str, message_queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], MessageQueue]]:
    monkeypatch.setenv("FLEET_REDIS_URL", url)
    yield MessageQueue.get_instance
    if MessageQueue._instance is not None:
        MessageQueue._instance.close()


@pytest.fixture
def wait(message_queue: MessageQueue, clock: HandClock) -> Callable[[float], None]:
    def wait(seconds: float) -> None:
        clock.now_ms += round(seconds * 1000)
        sweeper = message_queue._broker.sweeper
        message_queue._run(sweeper.carry())
        message_queue._run(sweeper.sweep())

    return wait


@pytest.fixture
def stored(message_queue: MessageQueue) -> Callable[[], Mapping[str, int]]:
    client = message_queue._broker.client

    async def count() -> dict[str, int]:
        found = {}
        async for key in client.scan_iter():
            command = _ENTRIES.get(await client.type(key))
            # Whose turn it is to sweep, and what was counted, is told by the clock on the wall.
            if key != BrokerKeys.sweeper and not key.startswith((FleetKeys.totals, FleetKeys.tallied)):
                found[key] = await getattr(client, command)(key) if command else 1
        return found

    return lambda: message_queue._run(count())


def _go_by(clock: HandClock, queue: MessageQueue) -> None:
    """Time is what the clock of the test says."""
    queue._broker.directory.now_ms = lambda: str(clock.now_ms)
