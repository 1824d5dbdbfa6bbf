"""A silent pool that answers again, where what was left for it cannot all be shown again: the next owner sees to it.

Real brokers that hold no groups: there, what is newer would overtake what is out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, cast

import pytest

from coordinator.route import route
from fleet.clock import SystemClock
from fleet.errors import StateUnavailable
from fleet.lease import Lease
from fleet.sources.base import Outgoing, Received, Source
from fleet.sources.open import open_publisher, open_source
from fleet.state.connect import connected
from fleet.state.keys import QueueKeys
from fleet.state.pool import Pool
from fleet.state.queue import Queue
from tests.clocks import HandClock
from tests.integration.activemq_source import HEARTBEAT_MS, source_of
from tests.integration.owner import Silence
from tests.integration.owning import HeldSource, Owning, an_owner
from tests.servers.activemq import ActiveMqServer
from tests.servers.local import RedisServer
from tests.servers.nats import NatsServer
from tests.servers.proxy import Proxy, proxied
from tests.state.stage import drain
from tests.waiting import eventually

VISIBILITY_MS = 3000
NOT_ALL_SHOWN = "what was left for pool P is not all shown again"


@pytest.fixture(autouse=True)
def _time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the brokers it does, too."""
    monkeypatch.setattr(HandClock, "boot_ms", lambda _: SystemClock().boot_ms())


async def send(uri: str, *names: str) -> None:
    """Of one group, which stands in their bodies alone: of others ActiveMQ has its own notion of who may have them."""
    publisher = open_publisher(uri)
    await publisher.open()
    body = {"poolCode": "P", "mediationTarget": "http://127.0.0.1:9/", "messageGroupId": "g"}
    messages = [Outgoing(name, json.dumps({"id": name, **body}).encode()) for name in names]
    assert await publisher.publish(messages) == [None] * len(names)
    await publisher.close()


async def take_and_die(url: str, source: Source, count: int) -> None:
    """An owner takes so many for the pool P, and tracks them, and that is its end."""
    batch = list[Received]()
    while len(batch) < count:
        batch += await source.poll(count - len(batch), 5000)
    async with connected(url) as client:
        lease = Lease(client=client, key=QueueKeys("q").owner, owner="dead", ttl_ms=1, clock=SystemClock())
        await lease.acquire()
        epoch = str(await client.hget(QueueKeys("q").owner, "epoch"))
        names = [json.loads(one.body)["id"] for one in batch]
        taken = [(one.broker_id, name, "P", "g", one.handle) for one, name in zip(batch, names, strict=True)]
        orders = [one.order(source) for one in route(batch, lambda code: code)[0]]
        assert orders == ["r"] * count
        await Queue(client, "q", epoch=epoch).track(taken, orders=orders)


@asynccontextmanager
async def an_heir(url: str, source: Callable[[], Source]) -> AsyncIterator[Owning]:
    """It reads the queue as long as this lasts, and comes again where it gave it up."""
    async with an_owner(url) as owning:
        owning.next_source = lambda: cast(HeldSource, source())
        try:
            await owning.configure("q")
            yield owning
        finally:
            owning.sources.clear()


async def half_taken_over(owning: Owning, silence: Silence) -> None:
    """The pool answers again, and its take-over ends the ownership."""
    await eventually(lambda: any(one.duties and not one.duties.in_disorder for one in owning.ownership.owned.values()))
    (owned,) = owning.ownership.owned.values()
    assert owned.task is not None and owned.duties is not None
    silence.over.set()
    await asyncio.wait([owned.task], timeout=15)
    assert owned.task.done() and owned.duties.in_disorder


async def delivered(owning: Owning, names: Sequence[str]) -> list[str]:
    """What comes to the pool in its order, until each of these was there."""
    tracked, came = Queue(owning.client, "q"), list[str]()

    async def all_came() -> bool:
        owning.rounds.look()
        broker_ids = await drain(Pool(owning.client, "P"))
        came.extend(one.message_id for one in await tracked.tracked(broker_ids) if one is not None)
        return set(came) >= set(names)

    await eventually(all_came, within_s=40)
    return came


@contextmanager
def untrack_lost(monkeypatch: pytest.MonkeyPatch, *, arrives: bool) -> Iterator[None]:
    """The first call of it, or its answer alone."""
    real, lost = Queue.untrack, list[Any]()

    async def untrack(queue: Queue, messages: Sequence[tuple[str, str]], **given: Any) -> dict[str, str]:
        if lost:
            return await real(queue, messages, **given)
        lost.append(messages)
        if arrives:
            assert len(await real(queue, messages, **given)) == len(messages)
        raise StateUnavailable("no answer")

    monkeypatch.setattr(Queue, "untrack", untrack)
    yield
    assert lost


@contextmanager
def cut(line: Proxy) -> Iterator[None]:
    line.cut()
    yield
    line.mend()


FAILURES: dict[str, Callable[[pytest.MonkeyPatch, Proxy], AbstractContextManager[None]]] = {
    "the call of untrack is lost": lambda monkeypatch, _: untrack_lost(monkeypatch, arrives=False),
    "the answer of untrack is lost": lambda monkeypatch, _: untrack_lost(monkeypatch, arrives=True),
    "the source cannot be reached": lambda _, line: cut(line),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_what_a_half_failed_take_over_leaves_comes_before_what_is_newer(
    redis_server: RedisServer,
    nats_server: NatsServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: str,
) -> None:
    stream = nats_server.new_stream()
    uri = nats_server.uri(stream)
    await send(uri, "1", "2", "3")
    older = open_source("q", uri, VISIBILITY_MS)
    await older.open()
    await take_and_die(redis_server.url, older, 3)
    await older.close()
    await send(uri, "4", "5", "6")
    silence = Silence(monkeypatch, "submit", "fence", "queued")
    with proxied(nats_server.port) as line:
        through_line = nats_server.uri(stream, port=line.port)
        async with an_heir(redis_server.url, lambda: open_source("q", through_line, VISIBILITY_MS)) as owning:
            await eventually(lambda: _is_tracked(owning, 6))
            with FAILURES[failure](monkeypatch, line):
                await half_taken_over(owning, silence)
            assert NOT_ALL_SHOWN in caplog.text
            await send(uri, "7", "8", "9")
            assert await delivered(owning, "123456789") == [*"123456789"]


async def test_what_is_out_with_the_last_owner_comes_before_what_is_newer(
    redis_server: RedisServer,
    activemq_server: ActiveMqServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    queue: str,
) -> None:
    """Of its handles the source knows none: fewer are shown again than were left."""
    uri = activemq_server.uri(queue)
    await send(uri, "1", "2", "3")
    silence = Silence(monkeypatch, "submit", "fence", "queued")
    with proxied(activemq_server.port) as line:
        older = source_of(activemq_server.uri(queue, port=line.port), HEARTBEAT_MS)
        await older.open()
        await take_and_die(redis_server.url, older, 3)
        # It waits longer than the broker takes to see that the other is silent.
        async with an_heir(redis_server.url, lambda: source_of(uri, 2 * HEARTBEAT_MS)) as owning:
            await half_taken_over(owning, silence)
            line.silence()
            assert f"{NOT_ALL_SHOWN}: it is out with its last owner" in caplog.text
            await send(uri, "4", "5", "6")
            assert await delivered(owning, "123456") == [*"123456"]
        await older.close()


async def _is_tracked(owning: Owning, count: int) -> bool:
    return await Queue(owning.client, "q").tracked_count() == count
