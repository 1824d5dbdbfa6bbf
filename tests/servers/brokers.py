"""A queue of each kind for a whole fleet: behind a line that can be cut, on a server that can be killed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fleet.broker.queue import MessageQueue
from fleet.errors import SourceUnavailable
from fleet.sources.base import Outgoing, Publisher
from tests.servers.activemq import running_activemq
from tests.servers.local import RedisServer, _accepts, _running, _wait_for, running_redis
from tests.servers.moto import aws_settings
from tests.servers.nats import running_nats
from tests.servers.ports import free_port
from tests.servers.proxy import Proxy, proxied
from tests.servers.sqs_door import running_sqs_door
from tests.servers.strict_sqs import running_strict_sqs, uri_of


@dataclass(frozen=True, slots=True)
class Broker:
    uri: str
    """As Fleet's processes reach it; '' is the stage's own embedded queue."""
    near_uri: str = ""
    """As the test reaches it, past the line; '' if there is none."""
    line: Proxy | None = None
    restart: Callable[[], None] | None = None
    """Kill it and start it again with what it stored."""
    redis_server: RedisServer | None = None
    """Set if the broker is the fleet's own Redis."""
    far_redis_url: str = ""
    """That Redis as Fleet's processes reach it."""
    send_uri: str = ""
    """Where the test sends to, if that is not the queue itself."""


class Persistent:
    """A publisher that sends again what may not be in, until it is."""

    def __init__(self, publisher: Publisher, *, within_s: float = 30) -> None:
        self._publisher, self._within_s = publisher, within_s
        self.again = 0

    async def open(self) -> None:
        await self._publisher.open()

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        async with asyncio.timeout(self._within_s):
            while True:
                try:
                    return await self._publisher.publish(messages)
                except SourceUnavailable:
                    self.again += 1
                    await asyncio.sleep(0.05)  # a server that is away has no event to wait for

    async def close(self) -> None:
        await self._publisher.close()


@contextmanager
def embedded(_directory: Path) -> Iterator[Broker]:
    yield Broker("")


@contextmanager
def own(directory: Path) -> Iterator[Broker]:
    """One Redis for the queue and for the fleet's state. What it answered is on its disk."""
    folder = directory / "redis"
    folder.mkdir()
    options = ("--appendonly", "yes", "--appendfsync", "always", "--dir", str(folder))
    with ExitStack() as stack:
        server = stack.enter_context(running_redis(*options))
        line = stack.enter_context(proxied(server.port))

        def restart() -> None:
            server.server.kill()
            stack.enter_context(running_redis(*options, port=server.port))

        far = server.url.replace(f":{server.port}/", f":{line.port}/")
        yield Broker("fleet://storm", "", line, restart, server, far)


@contextmanager
def subscription(directory: Path) -> Iterator[Broker]:
    """As a queue of our own; what is sent is published to its topic."""
    with own(directory) as broker:
        assert broker.redis_server is not None
        with MessageQueue(url=broker.redis_server.url) as queue:
            queue.register_topic("storm")
            queue.register_subscription("storm", "storm", message_ordering=True)
        yield replace(broker, uri="fleet://subscription/storm", send_uri="fleet://topic/storm")


@contextmanager
def sqs(directory: Path, *, fifo: bool) -> Iterator[Broker]:
    """One that keeps FIFO's rules, and its messages across a kill: moto does neither (tests/servers/strict_sqs.py)."""
    folder = directory / "sqs"
    folder.mkdir()
    port = free_port()
    with ExitStack() as stack:
        stack.enter_context(aws_settings())
        server = stack.enter_context(running_strict_sqs(folder, port=port, fifo=fifo))
        line = stack.enter_context(proxied(port))

        def restart() -> None:
            server.kill()
            stack.enter_context(running_strict_sqs(folder, port=port, fifo=fifo))

        yield Broker(uri_of(line.port, fifo=fifo), uri_of(port, fifo=fifo), line, restart)


@contextmanager
def door(directory: Path, *, fifo: bool) -> Iterator[Broker]:
    """Our own SQS door by HTTP. A kill takes it and its Redis, which has on its disk what was answered."""
    folder = directory / "redis"
    folder.mkdir()
    options = ("--appendonly", "yes", "--appendfsync", "always", "--dir", str(folder))
    with ExitStack() as stack:
        stack.enter_context(aws_settings())
        server = stack.enter_context(running_redis(*options))
        front = stack.enter_context(running_sqs_door(server.url))
        line = stack.enter_context(proxied(front.port))

        def restart() -> None:
            front.server.kill()
            server.server.kill()
            stack.enter_context(running_redis(*options, port=server.port))
            stack.enter_context(running_sqs_door(server.url, port=front.port))

        uri = front.make_queue(fifo=fifo, name="storm.fifo" if fifo else "storm")
        yield Broker(uri.replace(f":{front.port}/", f":{line.port}/"), uri, line, restart)


@contextmanager
def near_door(directory: Path, *, fifo: bool) -> Iterator[Broker]:
    """A queue of our SQS door in the fleet's own Redis, read there; the door makes it and ends."""
    name = "storm.fifo" if fifo else "storm"
    with own(directory) as broker:
        assert broker.redis_server is not None
        with running_sqs_door(broker.redis_server.url) as front:
            front.make_queue(fifo=fifo, name=name)
        yield replace(broker, uri=f"fleet://sqs/{name}")


@contextmanager
def quick_sqs(directory: Path) -> Iterator[Broker]:
    """Fast enough to feed pools, and no more: nothing that was taken comes again (tests/servers/fast_sqs.py)."""
    port = free_port()
    command = [sys.executable, "-m", "tests.servers.fast_sqs", str(port)]
    with aws_settings(), _running(command, directory / "sqs.log") as server:
        _wait_for(server, lambda: _accepts(port))
        yield Broker(f"http://127.0.0.1:{port}/000000000000/storm")


@contextmanager
def nats(directory: Path) -> Iterator[Broker]:
    folder = directory / "nats"
    folder.mkdir()
    with ExitStack() as stack:
        server = stack.enter_context(running_nats(folder))
        line = stack.enter_context(proxied(server.port))
        stream = server.new_stream()

        def restart() -> None:
            server.server.kill()
            stack.enter_context(running_nats(folder, port=server.port))

        yield Broker(server.uri(stream, port=line.port), server.uri(stream), line, restart)


@contextmanager
def activemq(directory: Path) -> Iterator[Broker]:
    with running_activemq(directory / "activemq") as server, proxied(server.port) as line:
        yield Broker(server.uri("storm", port=line.port), server.uri("storm"), line, server.restart)


BROKERS: dict[str, Callable[[Path], AbstractContextManager[Broker]]] = {
    "sqlite": embedded,
    "fleet": own,
    "subscription": subscription,
    "sqs-fifo": partial(sqs, fifo=True),
    "sqs": partial(sqs, fifo=False),
    "nats": nats,
    "activemq": activemq,
    "door-fifo": partial(door, fifo=True),
    "door": partial(door, fifo=False),
    "near-fifo": partial(near_door, fifo=True),
    "near": partial(near_door, fifo=False),
}
UNORDERED = frozenset({"sqs", "door", "near"})
"""Kinds whose groups do not stay in order through all of it, with `onFailure: hold`."""
_ONE_FILE = "it is a file of this machine: no line, no server"
CANNOT = {
    "test_the_line_to_the_broker_is_cut_for_ten_seconds": {"sqlite": _ONE_FILE},
    "test_the_broker_is_killed_and_started_again": {"sqlite": _ONE_FILE},
}
"""Tests that a kind cannot be put through → why."""
