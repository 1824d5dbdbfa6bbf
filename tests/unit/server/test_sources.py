"""The server and the queues: how often it asks how deep they are, and what it puts into them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from fleet.config.router import QueueConfig
from fleet.errors import SourceUnavailable
from fleet.operate.views import DepthNow
from fleet.server import publishers as module
from fleet.server.depths import LOCAL_MS, REMOTE_MS, Depths
from fleet.server.publishers import Publishers
from fleet.sources.base import Depth, Outgoing, Publisher
from fleet.sources.open import open_source
from tests.clocks import HandClock
from tests.messages import opened

LOCAL = QueueConfig(name="local", uri="sqlite:///q.db?queue=a")
REMOTE = QueueConfig(name="remote", uri="https://sqs.example/1/q")


class Asked:
    def __init__(self) -> None:
        self.names: list[str] = []

    async def __call__(self, queues: Sequence[QueueConfig]) -> list[DepthNow]:
        self.names += [queue.name for queue in queues]
        await asyncio.sleep(0)
        return [(Depth(len(self.names), 0, 0.0), "") for _ in queues]


async def test_a_queue_is_asked_no_more_often_than_it_can_bear() -> None:
    clock, asked = HandClock(), Asked()
    depths = Depths(clock=clock, ask=asked)
    await asyncio.gather(*(depths([LOCAL, REMOTE]) for _ in range(5)))
    assert asked.names == ["local", "remote"]
    clock.now_ms += round(LOCAL_MS)
    await depths([LOCAL, REMOTE])
    assert asked.names == ["local", "remote", "local"]
    clock.now_ms += round(REMOTE_MS)
    await depths([REMOTE])
    assert asked.names[3:] == ["remote"]


async def test_a_queue_that_now_lies_elsewhere_is_another_queue() -> None:
    asked = Asked()
    depths = Depths(clock=HandClock(), ask=asked)
    await depths([LOCAL])
    await depths([QueueConfig(name="local", uri="sqlite:///other.db?queue=a")])
    assert asked.names == ["local", "local"]


def uri(tmp_path: Path, name: str = "q") -> str:
    return f"sqlite:///{tmp_path}/queue.db?queue={name}"


async def bodies(where: str) -> list[bytes]:
    async with opened(open_source("q", where, 1000)) as source:
        return [message.body for message in await source.poll(1000, 0)]


async def test_requests_at_the_same_time_share_one_publisher_and_each_keeps_its_order(tmp_path: Path) -> None:
    publishers = Publishers()
    calls = [[Outgoing(f"{i}{j}", f"{i}{j}".encode(), f"g{i}") for j in range(5)] for i in range(5)]
    answers = await asyncio.gather(*(publishers.publish(uri(tmp_path), call) for call in calls))
    await publishers.close()
    assert answers == [[None] * 5] * 5
    found = await bodies(uri(tmp_path))
    # One poll shows the head of each group, or all of it: in order in either case.
    for i in range(5):
        mine = [body for body in found if body.startswith(str(i).encode())]
        assert mine == sorted(mine)


async def test_no_more_publishers_stay_open_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    publishers = Publishers()
    for name in ("a", "b", "c", "a"):
        assert await publishers.publish(uri(tmp_path, name), [Outgoing("1", b"1")]) == [None]
    assert list(publishers._open) == [uri(tmp_path, "c"), uri(tmp_path, "a")]
    await publishers.close()


class Breaking:
    """Takes one batch and breaks at the next."""

    opened = 0

    def __init__(self) -> None:
        self.batches = 0

    async def open(self) -> None:
        Breaking.opened += 1

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        self.batches += 1
        if self.batches > 1:
            raise SourceUnavailable("gone")
        return [None] * len(messages)

    async def close(self) -> None:
        pass


async def test_a_queue_that_breaks_half_way_refuses_the_rest_and_is_opened_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def open_breaking(_: str) -> Publisher:
        return Breaking()

    monkeypatch.setattr(module, "open_publisher", open_breaking)
    monkeypatch.setattr(module, "BATCH", 2)
    publishers = Publishers()
    messages = [Outgoing(str(i), b"x") for i in range(5)]
    assert await publishers.publish("u", messages) == [
        None,
        None,
        *["it may not have been accepted: gone"] * 2,
        "not sent: gone",
    ]
    assert await publishers.publish("u", messages[:2]) == [None, None]
    assert Breaking.opened == 2
    with pytest.raises(SourceUnavailable, match="gone"):
        await publishers.publish("u", messages)
