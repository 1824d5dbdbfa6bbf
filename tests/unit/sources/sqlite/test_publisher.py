from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from fleet.errors import SourceError, SourceFull, SourceUnavailable
from fleet.sources.base import Outgoing
from fleet.sources.sqlite.publisher import DEDUP_MS
from tests.messages import bodies, held
from tests.unit.sources.sqlite.queue_file import QueueFile, run_dying_producer, start_producer


@pytest.fixture
def queue_file(tmp_path: Path) -> QueueFile:
    return QueueFile(tmp_path / "queue.db")


async def test_a_dedup_id_is_forgotten_after_five_minutes_and_not_before(queue_file: QueueFile) -> None:
    async with queue_file.publisher() as publisher, queue_file.source() as source:
        for body, wait_ms in [(b"first", 0), (b"too soon", DEDUP_MS - 1), (b"again", 1), (b"too soon", 1)]:
            queue_file.clock.now_ms += wait_ms
            assert await publisher.publish([Outgoing(id="x", body=body, dedup_id="d")]) == [None]
        assert bodies(await source.poll(10, 0)) == ["first", "again"]


async def test_dedup_ids_of_two_queues_have_nothing_to_do_with_each_other(queue_file: QueueFile) -> None:
    for queue in ("a", "b"):
        async with queue_file.publisher(queue=queue) as publisher:
            await publisher.publish([Outgoing(id="x", body=b"x", dedup_id="d")])
        async with queue_file.source(queue=queue) as source:
            assert len(await source.poll(10, 0)) == 1


async def test_lapsed_dedup_ids_are_cleared_away_by_later_sends(queue_file: QueueFile) -> None:
    async with queue_file.publisher() as publisher:
        await publisher.publish([Outgoing(id="x", body=b"x", dedup_id=f"{n}") for n in range(100)])
        queue_file.clock.now_ms += DEDUP_MS
        for n in range(50):
            await publisher.publish([Outgoing(id="x", body=b"x", dedup_id=f"new {n}")])
    db = sqlite3.connect(queue_file.path)
    assert db.execute("SELECT count(*) FROM dedup").fetchone() == (50,)
    db.close()


async def test_a_name_that_is_no_text_is_refused_and_the_rest_is_accepted(queue_file: QueueFile) -> None:
    async with queue_file.publisher() as publisher, queue_file.source() as source:
        answers = await publisher.publish(
            [
                Outgoing(id="1", body=b"1", group="g"),
                Outgoing(id="2", body=b"2", group="\ud800"),
                Outgoing(id="3", body=b"3", dedup_id="\udfff"),
                Outgoing(id="4", body=b"4", delay_ms=-1),
                Outgoing(id="5", body=b"5", group="g"),
            ]
        )
        assert answers == [None, "group is not valid text", "dedup id is not valid text", "delay is negative", None]
        assert bodies(await source.poll(10, 0)) == ["1", "5"]


@pytest.mark.parametrize("group", ["nul\0byte", "line\nbreak", "'; DROP TABLE messages; --", "ü" * 10_000, "%s?:x"])
async def test_any_text_can_be_a_group(queue_file: QueueFile, group: str) -> None:
    async with queue_file.publisher() as publisher, queue_file.source() as source:
        await publisher.publish([Outgoing(id="x", body=b"1", group=group, dedup_id=group)])
        await publisher.publish([Outgoing(id="x", body=b"2", group=group)])
        first = await source.poll(1, 0)
        assert [one.group for one in first] == [group]
        assert await source.poll(1, 0) == []
        await source.ack(held(first))
        assert bodies(await source.poll(1, 0)) == ["2"]


async def test_a_large_body_comes_back_whole(queue_file: QueueFile) -> None:
    body = bytes(range(256)) * 4096
    async with queue_file.publisher() as publisher, queue_file.source() as source:
        await publisher.publish([Outgoing(id="x", body=body)])
        assert (await source.poll(1, 0))[0].body == body


async def test_a_full_file_refuses_the_batch_whole_and_takes_the_next_after_a_drain(queue_file: QueueFile) -> None:
    async with queue_file.publisher(max_file_bytes=200_000) as publisher, queue_file.source() as source:
        small = [Outgoing(id="x", body=b"small", group="g")]
        assert await publisher.publish(small) == [None]
        with pytest.raises(SourceFull, match="cannot grow"):
            await publisher.publish([Outgoing(id="x", body=b"x" * 1000) for _ in range(1000)])
        assert (await source.depth()).waiting == 1
        received = await source.poll(10, 0)
        assert bodies(received) == ["small"]
        assert all(await source.ack(held(received)))
        assert await publisher.publish(small) == [None]


async def test_a_batch_that_fails_half_way_leaves_nothing_and_blocks_nobody(queue_file: QueueFile) -> None:
    async with queue_file.publisher() as publisher, queue_file.source() as source:
        await asyncio.wrap_future(publisher._file.submit(lambda db: db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10_000)))
        with pytest.raises(SourceError, match="too big"):
            await publisher.publish([Outgoing(id="x", body=b"x" * size) for size in (1, 20_000, 1)])
        assert (await source.depth()).waiting == 0
        assert await publisher.publish([Outgoing(id="x", body=b"next")]) == [None]
        assert bodies(await source.poll(10, 0)) == ["next"]


async def test_a_file_locked_for_too_long_is_unavailable_and_works_again_afterwards(queue_file: QueueFile) -> None:
    async with queue_file.publisher(busy_timeout_ms=20) as publisher:
        other = sqlite3.connect(queue_file.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SourceUnavailable, match="locked"):
            await publisher.publish([Outgoing(id="x", body=b"x")])
        other.execute("ROLLBACK")
        other.close()
        assert await publisher.publish([Outgoing(id="x", body=b"x")]) == [None]


async def test_two_processes_publish_while_a_third_takes_and_every_group_stays_in_order(queue_file: QueueFile) -> None:
    rounds = 60
    async with queue_file.source() as source:
        producers = [start_producer(queue_file.path, name, rounds) for name in ("left", "right")]
        try:
            seen: dict[str, list[tuple[int, int]]] = {"left": [], "right": []}
            by_group: dict[tuple[str, str | None], list[tuple[int, int]]] = {}
            ids: set[str] = set()
            while len(ids) < 2 * rounds * 7:
                queue_file.clock.now_ms = 1 << 42  # the producers use the real clock
                received = await source.poll(50, 10_000)
                assert received, "a producer has died, or a message is lost"
                for one in received:
                    name, number, part = one.body.decode().split()
                    seen[name].append((int(number), int(part)))
                    by_group.setdefault((name, one.group), []).append((int(number), int(part)))
                    ids.add(one.broker_id)
                assert all(await source.ack(held(received)))
            assert all(order == sorted(order) for order in by_group.values())
            assert all(len(set(numbers)) == len(numbers) == rounds * 7 for numbers in seen.values())
        finally:
            codes = [await asyncio.to_thread(producer.wait, 30) for producer in producers]
    assert codes == [0, 0]


async def test_a_producer_killed_in_mid_transaction_leaves_nothing_and_blocks_nobody(queue_file: QueueFile) -> None:
    await queue_file.send("before")
    async with queue_file.source() as source, queue_file.publisher() as publisher:
        assert await asyncio.to_thread(run_dying_producer, queue_file.path) == -9
        assert await publisher.publish([Outgoing(id="x", body=b"after", group="g")]) == [None]
        received = await source.poll(10, 0)
        assert bodies(received) == ["before", "after"]
        assert all(await source.ack(held(received)))
        assert await source.poll(10, 0) == []
    db = sqlite3.connect(queue_file.path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
