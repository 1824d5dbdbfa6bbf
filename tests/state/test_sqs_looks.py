"""Looks at a queue that show nothing: for what is too old, and for what a task moves. They pass over no group."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fleet.broker.sqs import move_tasks
from fleet.state import engine
from fleet.state.connect import Client, connected
from fleet.state.engine import Engine, New, Rules
from fleet.state.keys import OwnQueueKeys
from tests.servers.local import RedisServer
from tests.state.sqs_stage import SqsStage, arn, redrive
from tests.state.stage import NOON_MS


@pytest.fixture
async def sqs(client: Client) -> AsyncIterator[SqsStage]:
    stage = SqsStage(client)
    yield stage
    await stage.aclose()


async def test_a_group_that_fills_a_look_hides_no_other_from_it(sqs: SqsStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_TIDY_AT_ONCE", 4)
    door = sqs.door()
    await door.create("q.fifo", MessageRetentionPeriod="600", VisibilityTimeout="500")
    await door.send("q.fifo", "old", "old")
    await door.receive("q.fifo")
    sqs.advance(300_000)
    for i in range(6):
        await door.send("q.fifo", str(i), "new")
    # What has come back stands behind what was sent meanwhile.
    sqs.advance(250_000)
    await sqs.set_clocks(door, "q.fifo")
    queue = OwnQueueKeys("sqs/q.fifo")
    assert await sqs.client.hlen(queue.bodies) == 7
    await door.tidy()
    assert await sqs.client.hlen(queue.bodies) == 6


async def test_a_group_that_cannot_go_back_keeps_no_other_from_it(
    sqs: SqsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move_tasks, "_AT_ONCE", 2)
    door = sqs.door()
    await door.create("dead.fifo")
    for name, bodies in (("gone", "abc"), ("there", "d")):
        await door.create(f"{name}.fifo", RedrivePolicy=redrive("dead.fifo"))
        for body in bodies:
            await door.send(f"{name}.fifo", body, name)
        await door.receive(f"{name}.fifo")
        sqs.advance(60_000)
        await door.receive(f"{name}.fifo")
        await door.verbs.upkeep.carry_soon(f"{name}.fifo")
    await door.ask("DeleteQueue", "gone.fifo")
    await sqs.set_clocks(door, "dead.fifo")
    await door.ask("StartMessageMoveTask", SourceArn=arn("dead.fifo"))
    await door.verbs.upkeep.each_second()
    assert await door.bodies("there.fifo") == ["d"]
    assert await door.bodies("dead.fifo") == ["a", "b", "c"]


async def test_what_stays_is_looked_at_without_its_body(redis_server: RedisServer) -> None:
    async with connected(redis_server.url) as client:
        ours = Engine(client, OwnQueueKeys("q"), kind="o", now_ms=str(NOON_MS))
        await ours.send([New(f"t{group}", group) for group in "abc"])
        await ours.receive(1, Rules(0))
        read: list[str] = []
        async with client.monitor() as monitor:
            await ours.tidy(Rules(0, retention_ms=60_000, max_count=1, target="dead"))
            await client.echo("done")
            async for one in monitor.listen():
                if one["command"] == "ECHO done":
                    break
                if one["command"].startswith(("HMGET ", "HGET ")) and ours.keys.bodies in one["command"]:
                    read.append(one["command"])
        # What moves has to be read.
        assert read == [f"HGET {ours.keys.bodies} {NOON_MS * 1000}"]
        assert await client.hlen(ours.keys.bodies) == 2
