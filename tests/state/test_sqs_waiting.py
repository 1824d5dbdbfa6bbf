"""Long polls at a queue that changes, and buckets whose clock steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fleet.broker.sqs.errors import SqsError
from fleet.state.connect import Client
from fleet.state.engine import Engine
from fleet.state.keys import OwnQueueKeys
from tests.state.sqs_stage import SqsDoor, SqsStage
from tests.state.stage import NOON_MS
from tests.waiting import eventually

SOON_S = 3.0
"""Less than the time after which a door looks without a signal."""


@pytest.fixture
async def sqs(client: Client) -> AsyncIterator[SqsStage]:
    stage = SqsStage(client)
    yield stage
    await stage.aclose()


def signal(door: SqsDoor) -> None:
    door.verbs.queues.on_signal(OwnQueueKeys("sqs/q").prefix)


async def poll(door: SqsDoor) -> asyncio.Task[list[dict[str, Any]]]:
    task = asyncio.create_task(door.receive("q", wait_s=20))
    await eventually(lambda: door.verbs.queues.waiting == 1)
    return task


async def test_a_poll_goes_on_for_its_own_time_when_the_queue_changes(sqs: SqsStage) -> None:
    door, other = sqs.door(), sqs.door()
    await door.create("q")
    polling = await poll(door)
    await other.ask("SetQueueAttributes", "q", Attributes={"VisibilityTimeout": "7"})
    signal(door)
    await asyncio.wait([polling], timeout=0.2)
    assert not polling.done()
    await other.send("q", "a")
    signal(door)
    async with asyncio.timeout(SOON_S):
        assert [one["Body"] for one in await polling] == ["a"]


async def test_a_poll_hears_of_a_message_after_the_door_has_changed_the_record(sqs: SqsStage) -> None:
    door = sqs.door()
    await door.create("q")
    polling = await poll(door)
    await door.ask("TagQueue", "q", Tags={"a": "b"})
    await door.send("q", "a")
    signal(door)
    async with asyncio.timeout(SOON_S):
        assert [one["Body"] for one in await polling] == ["a"]


async def test_a_poll_at_a_queue_that_is_deleted_is_told_so_and_at_one_made_anew_goes_on(sqs: SqsStage) -> None:
    door, other = sqs.door(), sqs.door()
    await door.create("q")
    polling = await poll(door)
    await other.ask("DeleteQueue", "q")
    await other.create("q")
    signal(door)
    await other.send("q", "of the next one")
    signal(door)
    async with asyncio.timeout(SOON_S):
        assert [one["Body"] for one in await polling] == ["of the next one"]
    polling = await poll(door)
    await other.ask("DeleteQueue", "q")
    signal(door)
    async with asyncio.timeout(SOON_S):
        with pytest.raises(SqsError, match="does not exist"):
            await polling


async def test_a_bucket_fills_again_though_the_clock_was_a_day_ahead_for_a_while(client: Client) -> None:
    engine = Engine(client, OwnQueueKeys("sqs/q"), kind="s", incarnation=1)
    await engine.establish()

    async def ask(n: int, now_ms: int) -> bool:
        engine.now_ms = str(now_ms)
        found = await engine.charge("send", [n], capacity=10.0, refill=1.0, idle_ms=3_600_000)
        return list(found.wait_ms) == [0]

    assert await ask(10, NOON_MS)
    assert await ask(10, NOON_MS + 86_400_000)
    assert not await ask(10, NOON_MS)
    assert await ask(10, NOON_MS + 10_000)


async def test_the_upkeep_drops_all_that_is_too_old_however_many_are_of_one_group(sqs: SqsStage) -> None:
    door = sqs.door()
    await door.create("q.fifo", MessageRetentionPeriod="60")
    for i in range(35):
        await door.send("q.fifo", str(i))
    sqs.advance(60_001)
    await sqs.set_clocks(door, "q.fifo")
    await door.tidy()
    found = await door.ask("GetQueueAttributes", "q.fifo", AttributeNames=["ApproximateNumberOfMessages"])
    assert found == {"Attributes": {"ApproximateNumberOfMessages": "0"}}


@pytest.mark.parametrize("queue", ["q", "q.fifo"])
async def test_what_is_deleted_right_behind_a_change_in_one_call_leaves_nothing_behind(
    sqs: SqsStage, queue: str
) -> None:
    door = sqs.door()
    await door.create(queue)
    await door.send(queue, "a")
    (message,) = await door.receive(queue)
    handle = {"ReceiptHandle": message["ReceiptHandle"]}
    # What two clients ask at the same moment goes in one call.
    await asyncio.gather(
        door.ask("ChangeMessageVisibility", queue, **handle, VisibilityTimeout=0),
        door.ask("ChangeMessageVisibility", queue, **handle, VisibilityTimeout=600),
        door.ask("DeleteMessage", queue, **handle),
        return_exceptions=True,
    )
    await asyncio.gather(door.ask("DeleteMessage", queue, **handle), return_exceptions=True)
    found = [key.rpartition(":")[2] for key in await sqs.keys(queue)]
    assert set(found) <= {"state", "seen"}
