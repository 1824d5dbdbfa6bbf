from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from fleet.errors import SourceUnavailable
from fleet.sources.base import Outgoing
from fleet.sources.sqlite import source as sqlite
from tests.messages import bodies, held
from tests.unit.sources.sqlite.queue_file import QueueFile


@pytest.fixture
def queue_file(tmp_path: Path) -> QueueFile:
    return QueueFile(tmp_path / "queue.db")


_TABLES = ["groups", "messages", "bodies", "segments"]


async def test_a_poll_spreads_over_groups_and_takes_several_of_each(queue_file: QueueFile) -> None:
    async with queue_file.publisher() as publisher, queue_file.source() as source:
        for group in range(100):
            await publisher.publish([Outgoing(id="x", body=b"%d" % n, group=f"{group}") for n in range(40)])
        received = await source.poll(320, 0)
    by_group: dict[str | None, list[bytes]] = {}
    for one in received:
        by_group.setdefault(one.group, []).append(one.body)
    assert len(received) == 320
    assert len(by_group) == 32
    assert all(taken == [b"%d" % n for n in range(10)] for taken in by_group.values())


async def test_a_single_group_may_fill_the_batch(queue_file: QueueFile) -> None:
    sent = [f"{number}" for number in range(700)]
    await queue_file.send(*sent)
    async with queue_file.source() as source:
        assert bodies(await source.poll(500, 0)) == sent[:500]
        assert await source.poll(500, 0) == []


async def test_a_few_groups_share_what_is_left_of_the_batch(queue_file: QueueFile) -> None:
    await queue_file.send(*[f"short {n}" for n in range(3)], group="short")
    await queue_file.send(*[f"long {n}" for n in range(300)], group="long")
    async with queue_file.source() as source:
        received = bodies(await source.poll(100, 0))
    assert [body for body in received if body.startswith("short")] == [f"short {n}" for n in range(3)]
    assert [body for body in received if body.startswith("long")] == [f"long {n}" for n in range(97)]


async def test_a_run_taken_from_a_group_ends_at_its_first_invisible_message(queue_file: QueueFile) -> None:
    await queue_file.send(*[f"{n}" for n in range(20)], group="held")
    async with queue_file.source() as source:
        received = held(await source.poll(10, 0))
        assert await source.nack([(one, 60_000 if place == 3 else 0) for place, one in enumerate(received)])
        await queue_file.send(*[f"other {n}" for n in range(100)], group="other")
        taken = bodies(await source.poll(320, 0))
    assert [body for body in taken if not body.startswith("other")] == ["0", "1", "2"]
    assert len(taken) == 103


async def test_a_deep_group_cannot_keep_a_younger_one_waiting(queue_file: QueueFile) -> None:
    await queue_file.send(*[f"deep {n}" for n in range(50)], group="deep")
    queue_file.clock.now_ms += 1
    await queue_file.send("young", group="young")
    async with queue_file.source() as source:
        first = await source.poll(1, 0)
        assert bodies(first) == ["deep 0"]
        queue_file.clock.now_ms += 1
        await source.ack(held(first))
        assert bodies(await source.poll(1, 0)) == ["young"]


async def test_a_stale_handle_does_not_move_its_group_in_the_line(queue_file: QueueFile) -> None:
    await queue_file.send("a", group="a")
    async with queue_file.source(visibility_ms=10) as source:
        old = held(await source.poll(1, 0))
        queue_file.clock.now_ms += 10
        again = await source.poll(1, 0)
        await source.nack([(held(again)[0], 5)])
        queue_file.clock.now_ms += 6
        await queue_file.send("b", group="b")
        assert await source.nack([(old[0], 60_000)]) == [False]
        assert bodies(await source.poll(1, 0)) == ["a"]


async def test_a_nack_ends_the_delivery_for_its_handle(queue_file: QueueFile) -> None:
    await queue_file.send("a")
    async with queue_file.source() as source:
        received = held(await source.poll(1, 0))
        assert await source.nack([(received[0], 1000)]) == [True]
        assert await source.ack(received) == [False]
        assert await source.nack([(received[0], 0)]) == [False]


async def test_a_lapsed_lease_that_nobody_took_over_can_still_be_acked(queue_file: QueueFile) -> None:
    await queue_file.send("a")
    async with queue_file.source(visibility_ms=10) as source:
        received = held(await source.poll(1, 0))
        queue_file.clock.now_ms += 1000
        assert await source.ack(received) == [True]


async def test_the_same_handle_twice_in_a_call_is_one_ack(queue_file: QueueFile) -> None:
    await queue_file.send("a")
    async with queue_file.source() as source:
        one = held(await source.poll(1, 0))[0]
        assert await source.ack([one, one]) == [True, True]
        depth = await source.depth()
        assert (depth.waiting, depth.invisible) == (0, 0)


async def test_a_poll_cancelled_in_the_middle_gives_back_in_order_and_counts_no_delivery(queue_file: QueueFile) -> None:
    await queue_file.send("1", "2", "3")
    async with queue_file.source() as source:
        queue_file.clock.stop()
        poll = asyncio.create_task(source.poll(10, 0))
        assert await asyncio.to_thread(queue_file.clock.asked.wait, 10)
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        queue_file.clock.go.set()
        received = await source.poll(10, 0)
        assert bodies(received) == ["1", "2", "3"]
        assert [one.receive_count for one in received] == [1, 1, 1]


async def test_a_poll_cancelled_after_the_thread_is_done_gives_back(queue_file: QueueFile) -> None:
    await queue_file.send("1", "2")
    async with queue_file.source() as source:
        poll = asyncio.create_task(source.poll(10, 0))
        await asyncio.sleep(0)  # it has asked the thread
        # The loop stands still until the thread is done, so it cannot have learnt that it is.
        source._file.submit(lambda db: None).result(10)
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        assert bodies(await source.poll(10, 0)) == ["1", "2"]


async def test_a_waiting_poll_ends_when_the_source_closes(queue_file: QueueFile) -> None:
    async with queue_file.source() as source:
        poll = asyncio.create_task(source.poll(10, 60_000))
        assert await source.poll(10, 0) == []
        await source.close()
        assert await asyncio.wait_for(poll, 5) == []


async def test_an_ack_wakes_a_poll_that_waits_for_the_rest_of_its_group(
    queue_file: QueueFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_LOOK_S", 60)
    await queue_file.send("1", "2")
    async with queue_file.source(visibility_ms=1_000_000) as source:
        first = held(await source.poll(1, 0))
        poll = asyncio.create_task(source.poll(1, 60_000))
        assert await source.poll(1, 0) == []
        await source.ack(first)
        assert bodies(await asyncio.wait_for(poll, 5)) == ["2"]


async def test_a_poll_looks_once_a_ring_and_then_waits(queue_file: QueueFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_LOOK_S", 60)
    async with queue_file.source() as source:
        poll = asyncio.create_task(source.poll(1, 60_000))
        for _ in range(3):
            await source.ack([])
            assert await source.poll(1, 0) == []
        before = queue_file.clock.times_asked
        await source.poll(1, 100)
        assert queue_file.clock.times_asked - before <= 6
        poll.cancel()


async def test_calls_on_a_closed_source_say_so(queue_file: QueueFile) -> None:
    async with queue_file.source() as source:
        await source.close()
        await source.close()
        with pytest.raises(SourceUnavailable, match="is not open"):
            await source.poll(1, 0)


async def test_queues_in_one_file_do_not_see_each_other(queue_file: QueueFile) -> None:
    await queue_file.send("to a", queue="a")
    await queue_file.send("to b", queue="b")
    async with queue_file.source(queue="a") as a, queue_file.source(queue="b") as b:
        of_a = await a.poll(10, 0)
        assert bodies(of_a) == ["to a"]
        assert await b.ack(held(of_a)) == [False]
        assert bodies(await b.poll(10, 0)) == ["to b"]
        assert (await a.depth()).invisible == 1
        assert await a.ack(held(of_a)) == [True]
        assert ((await a.depth()).invisible, (await b.depth()).invisible) == (0, 1)


async def test_ids_and_numbers_are_not_used_again_after_a_drain(queue_file: QueueFile) -> None:
    seen: set[str] = set()
    handles: set[str] = set()
    for _ in range(5):
        await queue_file.send("x")
        async with queue_file.source() as source:  # the last one out closes the file for good
            received = await source.poll(10, 0)
            assert await source.ack(held(received)) == [True]
        seen.update(one.broker_id for one in received)
        handles.update(one.handle for one in received)
    assert len(seen) == len(handles) == 5


async def test_a_handle_of_a_deleted_file_acks_nothing_in_its_successor(queue_file: QueueFile) -> None:
    await queue_file.send("old")
    async with queue_file.source() as source:
        old = held(await source.poll(1, 0))
    for file in queue_file.path.parent.iterdir():
        file.unlink()
    await queue_file.send("new")
    async with queue_file.source() as source:
        (new,) = await source.poll(1, 0)
        assert await source.ack(old) == [False]
        assert await source.ack(held([new])) == [True]


async def test_depth_knows_the_age_of_the_oldest_message_that_is_left(queue_file: QueueFile) -> None:
    await queue_file.send("old", group="a")
    queue_file.clock.now_ms += 2500
    await queue_file.send("new", group="b")
    queue_file.clock.now_ms += 1000
    async with queue_file.source() as source:
        assert (await source.depth()).oldest_s == pytest.approx(3.5)
        await source.ack(held(await source.poll(1, 0)))
        assert (await source.depth()).oldest_s == pytest.approx(1.0)


async def test_a_lapsed_lease_counts_as_waiting_again(queue_file: QueueFile) -> None:
    await queue_file.send("a", "b")
    async with queue_file.source(visibility_ms=1000) as source:
        await source.poll(1, 0)
        assert ((await source.depth()).waiting, (await source.depth()).invisible) == (1, 1)
        queue_file.clock.now_ms += 1001
        assert ((await source.depth()).waiting, (await source.depth()).invisible) == (2, 0)


async def test_a_message_that_stays_does_not_keep_large_dead_neighbours(queue_file: QueueFile) -> None:
    async with queue_file.publisher() as publisher, queue_file.source() as source:
        await publisher.publish([Outgoing(id="x", body=b"x" * 20_000, group=f"{n}") for n in range(50)])
        received = await source.poll(50, 0)
        await source.ack(held(received[1:]))
        db = sqlite3.connect(queue_file.path)
        assert db.execute("SELECT count(*) FROM bodies").fetchone() == (1,)
        db.close()


@pytest.mark.parametrize("size", [10, 20_000])
async def test_an_emptied_queue_leaves_no_rows_behind(queue_file: QueueFile, size: int) -> None:
    async with queue_file.publisher() as publisher:
        await publisher.publish([Outgoing(id="x", body=b"x" * size, group=f"{n % 7}") for n in range(600)])
    async with queue_file.source() as source:
        while received := await source.poll(97, 0):
            assert all(await source.ack(held(received)))
        queue_file.clock.now_ms += 60_000
        await queue_file.send("last")
        await source.ack(held(await source.poll(1, 0)))
    db = sqlite3.connect(queue_file.path)
    left = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in _TABLES}
    db.close()
    assert left == dict.fromkeys(_TABLES, 0)
