"""SQS doors that die between two calls, know less than others, or meet a Redis without its last writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fleet.broker.sqs.errors import SqsError
from fleet.broker.sqs.records import QueueRecord
from fleet.state.connect import Client
from tests.state.sqs_stage import SqsDoor, SqsStage, arn, redrive

PARTS = {"PartitionCount": "4", "FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}


@pytest.fixture
async def sqs(client: Client) -> AsyncIterator[SqsStage]:
    stage = SqsStage(client)
    yield stage
    await stage.aclose()


async def with_dead_letters(sqs: SqsStage, fifo: str = ".fifo") -> SqsDoor:
    door = sqs.door()
    await door.create(f"dead{fifo}")
    await door.create(f"q{fifo}", RedrivePolicy=redrive(f"dead{fifo}"))
    return door


async def carry(door: SqsDoor, queue: str = "q.fifo") -> None:
    async with asyncio.timeout(5):
        await door.verbs.upkeep.carry_soon(queue)


# Dead letters -----------------------------------------------------------------------------------------


async def test_dead_letters_arrive_where_redis_has_forgotten_the_last_places_of_an_outbox(sqs: SqsStage) -> None:
    """The node of the target knows them still: in a Cluster one may come back older than the others."""
    door = await with_dead_letters(sqs)
    await door.have_dead_letters("q.fifo", "a", "b", "c")
    await carry(door)
    await sqs.client.hdel(sqs.state_of("q.fifo"), "place")
    sqs.advance(1)
    await door.have_dead_letters("q.fifo", "d", "e")
    await carry(door)
    assert await door.bodies("dead.fifo") == ["a", "b", "c", "d", "e"]


async def test_a_courier_that_slept_for_ten_minutes_brings_nothing_twice(sqs: SqsStage) -> None:
    """It sleeps between its look at the outbox and its call at the target, and between that and the outbox."""
    door, other = await with_dead_letters(sqs), sqs.door()
    await door.have_dead_letters("q.fifo", "a", "b")
    (engine,) = (await door.verbs.queues.use("q.fifo", _itself)).engines
    slept: list[str] = []
    looked = engine.outgoing

    async def look_and_sleep(target: str, most: int) -> Any:
        found = await looked(target, most)
        if not slept:
            slept.append(target)
            await carry(other)
            sqs.advance(600_000)
            await other.ask("PurgeQueue", "dead.fifo")
            await other.have_dead_letters("q.fifo", "c")
        return found

    engine.outgoing = look_and_sleep
    await carry(door)
    assert await door.bodies("dead.fifo") == ["c"]


async def test_a_courier_that_slept_does_not_bring_to_the_next_queue_of_that_name_what_the_last_one_had(
    sqs: SqsStage,
) -> None:
    door, other = await with_dead_letters(sqs), sqs.door()
    await door.have_dead_letters("q.fifo", "a")
    to = await door.verbs.queues.use("dead.fifo", _itself)
    arrive = to.engines[0].arrive
    slept: list[str] = []

    async def sleep_and_arrive(letters: Any, **more: Any) -> int:
        if not slept:
            slept.append("once")
            await carry(other)
            await other.ask("DeleteQueue", "dead.fifo")
            sqs.advance(600_000)
            await other.create("dead.fifo")
            await other.have_dead_letters("q.fifo", "b")
        taken: int = await arrive(letters, **more)
        return taken

    to.engines[0].arrive = sleep_and_arrive
    await carry(door)
    assert await door.bodies("dead.fifo") == ["b"]
    assert len(slept) == 1


async def test_dead_letters_are_brought_also_when_the_policy_that_sent_them_is_gone(sqs: SqsStage) -> None:
    door = await with_dead_letters(sqs)
    await door.ask("DeleteQueue", "dead.fifo")
    await door.have_dead_letters("q.fifo", "a")
    await carry(door)
    await door.ask("SetQueueAttributes", "q.fifo", Attributes={"RedrivePolicy": ""})
    await door.create("dead.fifo")
    await door.tidy()
    assert await door.bodies("dead.fifo") == ["a"]


async def test_a_queue_that_cannot_be_read_does_not_keep_the_upkeep_from_the_others(sqs: SqsStage) -> None:
    door = await with_dead_letters(sqs)
    await door.create("broken.fifo", RedrivePolicy=redrive("dead.fifo"))
    await door.have_dead_letters("q.fifo", "a")
    await door.send("broken.fifo", "b")
    await door.receive("broken.fifo")
    keys = (await door.verbs.queues.use("broken.fifo", _itself)).engines[0].keys
    (number,) = await sqs.client.hkeys(keys.bodies)
    await sqs.client.hset(keys.bodies, number, "T9:garbage!!")
    sqs.advance(60_000)
    await door.receive("broken.fifo")
    await door.verbs.upkeep.each_second()
    assert await door.bodies("dead.fifo") == ["a"]


async def test_a_move_task_whose_messages_cannot_be_read_fails_and_the_others_go_on(sqs: SqsStage) -> None:
    door = await with_dead_letters(sqs)
    await door.create("other-dead.fifo")
    await door.create("other.fifo", RedrivePolicy=redrive("other-dead.fifo"))
    for queue, body in (("other.fifo", "a"), ("q.fifo", "b")):
        await door.have_dead_letters(queue, body)
        await carry(door, queue)
    dead = (await door.verbs.queues.use("dead.fifo", _itself)).engines[0]
    (number,) = await sqs.client.hkeys(dead.keys.bodies)
    await sqs.client.hset(dead.keys.bodies, number, "T9:garbage!!")
    for queue in ("dead.fifo", "other-dead.fifo"):
        await sqs.set_clocks(door, queue)
        await door.ask("StartMessageMoveTask", SourceArn=arn(queue))
    for _ in range(3):
        await door.verbs.upkeep.each_second()
    found = [
        (await door.ask("ListMessageMoveTasks", SourceArn=arn(queue)))["Results"][0]["Status"]
        for queue in ("dead.fifo", "other-dead.fifo")
    ]
    assert found == ["FAILED", "COMPLETED"]
    assert await door.bodies("other.fifo") == ["a"]


# Queues that come and go ------------------------------------------------------------------------------


async def test_a_door_that_slept_through_a_deletion_accepts_nothing_for_a_queue_that_is_forgotten(
    sqs: SqsStage,
) -> None:
    door, other = sqs.door(), sqs.door()
    await door.create("q")
    await door.send("q", "a")
    await other.ask("DeleteQueue", "q")
    await sqs.client.delete(sqs.state_of("q"))  # a day later
    with pytest.raises(SqsError, match="does not exist"):
        await door.send("q", "b")
    assert await sqs.keys("q") == []


@pytest.mark.parametrize("is_made_anew", [True, False])
async def test_a_creation_that_a_deletion_overtakes_ends_well_and_leaves_what_came_after_alone(
    sqs: SqsStage, is_made_anew: bool
) -> None:
    door, other = sqs.door(), sqs.door()
    change = door.verbs.queues.change
    records: list[QueueRecord] = []
    slept: list[str] = []

    async def change_and_sleep(name: str, seen: str, record: QueueRecord | None) -> bool:
        done = await change(name, seen, record)
        if not slept:
            slept.append("once")
            await other.ask("DeleteQueue", "q")
            if is_made_anew:
                await other.create("q")
                records.append((await other.verbs.queues.find("q"))[1])
        return done

    door.verbs.queues.change = change_and_sleep  # type: ignore[method-assign]
    await door.create("q")
    if is_made_anew:
        assert (await door.verbs.queues.find("q"))[1] == records[0]
    await other.send("q", "a")
    assert await door.bodies("q") == ["a"]


async def test_many_doors_that_create_and_delete_one_queue_end_with_it_there_or_not(sqs: SqsStage) -> None:
    doors = [sqs.door() for _ in range(4)]
    told: list[str] = []

    async def go_on(door: SqsDoor, turn: int) -> None:
        for i in range(6):
            try:
                await door.ask("DeleteQueue", "q") if (turn + i) % 2 else await door.create("q")
            except SqsError as error:
                told.append(error.code)

    await asyncio.gather(*(go_on(door, turn) for turn, door in enumerate(doors)))
    # What is not there cannot be deleted; nothing else goes wrong.
    assert set(told) <= {"AWS.SimpleQueueService.NonExistentQueue"}
    await doors[0].create("q")
    await doors[1].send("q", "a")
    assert await doors[2].bodies("q") == ["a"]
    await doors[3].ask("DeleteQueue", "q")
    assert [key for key in await sqs.keys("q") if await sqs.client.pttl(key) < 0] == []


async def test_a_deletion_that_was_cut_off_is_finished_by_another_door(sqs: SqsStage) -> None:
    door, other = sqs.door(), sqs.door()
    await door.create("q.fifo", **PARTS)
    for group in "abcdef":
        await other.send("q.fifo", group, group)
    change = door.verbs.queues.catalogue.change

    async def change_and_die(*changes: Any) -> bool:
        await change(*changes)
        raise asyncio.CancelledError

    door.verbs.queues.catalogue.change = change_and_die  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await door.ask("DeleteQueue", "q.fifo")
    await sqs.door().verbs.upkeep.each_second()
    assert [key for key in await sqs.keys("q.fifo") if await sqs.client.pttl(key) < 0] == []
    with pytest.raises(SqsError, match="does not exist"):
        await other.send("q.fifo", "late")
    assert [entry async for entry in other.verbs.queues.catalogue.all("tasks")] == []


async def test_a_purge_that_was_cut_off_is_finished_by_another_door_once(sqs: SqsStage) -> None:
    door, other = sqs.door(purge_interval_s=60), sqs.door(purge_interval_s=60)
    await door.create("q.fifo", **PARTS)
    for group in "abcdef":
        await other.send("q.fifo", group, group)
    queue = await door.verbs.queues.use("q.fifo", _itself)

    async def die(_: str) -> int:
        raise asyncio.CancelledError

    queue.engines[1].purge = die
    with pytest.raises(asyncio.CancelledError):
        await door.ask("PurgeQueue", "q.fifo")
    with pytest.raises(SqsError, match="every 60 seconds"):
        await other.ask("PurgeQueue", "q.fifo")
    sqs.advance(1000)
    await other.verbs.upkeep.each_second()
    assert await other.bodies("q.fifo") == []
    # What is sent from now on is not purged with it, however often it is looked at.
    for group in "abcdef":
        await other.send("q.fifo", f"{group}-again", group)
    other.verbs.upkeep.hear("q.fifo")
    await other.verbs.upkeep.each_second()
    assert len(await other.bodies("q.fifo")) == 6


async def test_a_purge_of_a_queue_that_changes_meanwhile_is_done_and_told_so(sqs: SqsStage) -> None:
    door, other = sqs.door(purge_interval_s=60), sqs.door()
    await door.create("q")
    await door.send("q", "a")
    queue = await door.verbs.queues.use("q", _itself)
    purge = queue.engines[0].purge

    async def change_and_purge(which: str) -> int:
        await other.ask("SetQueueAttributes", "q", Attributes={"VisibilityTimeout": "7"})
        gone: int = await purge(which)
        return gone

    queue.engines[0].purge = change_and_purge
    await door.ask("PurgeQueue", "q")
    assert await other.bodies("q") == []


async def test_what_a_deleted_queue_could_not_send_goes_with_it(sqs: SqsStage) -> None:
    door = await with_dead_letters(sqs)
    await door.ask("DeleteQueue", "dead.fifo")
    await door.have_dead_letters("q.fifo", "a")
    await door.ask("DeleteQueue", "q.fifo")
    assert [key for key in await sqs.keys("") if await sqs.client.pttl(key) < 0] == []


async def test_a_change_that_was_cut_off_reaches_the_other_doors(sqs: SqsStage) -> None:
    door, other = sqs.door(), sqs.door()
    await door.create("q")
    await other.send("q", "a")
    change = door.verbs.queues.change

    async def change_and_die(name: str, seen: str, record: QueueRecord | None) -> bool:
        await change(name, seen, record)
        raise asyncio.CancelledError

    door.verbs.queues.change = change_and_die  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await door.ask("SetQueueAttributes", "q", Attributes={"VisibilityTimeout": "7"})
    await other.tidy()
    assert (await other.verbs.queues.use("q", _itself)).attributes.visibility_s == 7


async def test_a_catalogue_without_its_last_writes_does_not_keep_a_queue_from_being_used(sqs: SqsStage) -> None:
    """In a Cluster it may have come back older than the queue is."""
    door = sqs.door()
    await door.create("q")
    await door.send("q", "a")
    _, record = await door.verbs.queues.find("q")
    await door.ask("SetQueueAttributes", "q", Attributes={"VisibilityTimeout": "7"})
    now, _ = await door.verbs.queues.find("q")
    assert await door.verbs.queues.change("q", now, record)
    assert await sqs.door().bodies("q") == ["a"]


async def _itself(queue: Any) -> Any:
    return queue
