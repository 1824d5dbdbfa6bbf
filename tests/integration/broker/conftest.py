"""What the rules of seed 001 are asked of. The bodies belong to whoever builds the engine; this is what they promise.

`message_queue`
    A `fleet.broker.MessageQueue` as `MessageQueue(url=…)` makes it, on a Redis without keys, closed after the test.
    Parametrised by what is below it: "fakeredis", "server" (`redis_server`) and "cluster" (`redis_cluster`).

`get_instance`
    `MessageQueue.get_instance`, with FLEET_REDIS_URL naming the Redis of `message_queue`. The instance is closed and
    forgotten after the test, so that each test sees the first call.

`wait(seconds)`
    Moves by hand the clock that judges deadlines, backoffs and retention, and sleeps not a moment. Time stands still
    otherwise, so a deadline of 10 s has not passed at `wait(10 - 0.1)` and has at `wait(10 + 0.1)`, however busy the
    machine is. Before it returns it carries out what is due by then and runs in the background otherwise: the courier
    has brought what was moved, the sweep has dropped what is too old. So the next call sees it all.

`stored()`
    What the broker keeps in Redis: by key, how many entries it has (a string counts as one). Two of them compared show
    what an operation leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.integration.broker.surface import MessageQueue


@pytest.fixture
def message_queue() -> MessageQueue:
    raise NotImplementedError


@pytest.fixture
def get_instance(message_queue: MessageQueue) -> Callable[[], MessageQueue]:
    raise NotImplementedError


@pytest.fixture
def wait(message_queue: MessageQueue) -> Callable[[float], None]:
    raise NotImplementedError


@pytest.fixture
def stored(message_queue: MessageQueue) -> Callable[[], Mapping[str, int]]:
    raise NotImplementedError
