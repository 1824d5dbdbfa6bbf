from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path

import pytest

from fleet.errors import SourceError, SourceUnavailable
from fleet.sources.base import Outgoing
from tests.messages import bodies, held
from tests.unit.sources.sqlite.queue_file import QueueFile


async def test_file_and_folders_are_made_on_demand(tmp_path: Path) -> None:
    queue_file = QueueFile(tmp_path / "a" / "b" / "queue.db")
    await queue_file.send("x")
    async with queue_file.source() as source:
        assert bodies(await source.poll(1, 0)) == ["x"]


async def test_many_can_open_a_new_file_at_once(tmp_path: Path) -> None:
    queue_file = QueueFile(tmp_path / "queue.db")
    await asyncio.gather(*(queue_file.send(f"{n}", group=None, queue=f"q{n % 2}") for n in range(8)))
    async with queue_file.source(queue="q0") as source:
        assert len(await source.poll(10, 0)) == 4


@pytest.mark.parametrize("content", [b"this is no database" * 500, b"SQLite format 3\0" + b"\xff" * 8000])
async def test_a_damaged_file_is_one_clear_error_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "queue.db"
    path.write_bytes(content)
    with pytest.raises(SourceError, match="damaged, or not a queue file"):
        async with QueueFile(path).source():
            pass
    assert path.read_bytes() == content


async def test_pages_damaged_later_are_one_clear_error(tmp_path: Path) -> None:
    queue_file = QueueFile(tmp_path / "queue.db")
    await queue_file.send("x")
    raw = bytearray(queue_file.path.read_bytes())
    raw[4096:] = b"\xa5" * (len(raw) - 4096)
    queue_file.path.write_bytes(raw)
    with pytest.raises(SourceError, match="is damaged"):
        async with queue_file.source() as source:
            await source.poll(1, 0)


async def test_a_database_of_another_program_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(SourceError, match="of another program"):
        async with QueueFile(path).source():
            pass
    assert path.read_bytes() == before


async def test_a_file_of_a_later_format_is_refused(tmp_path: Path) -> None:
    queue_file = QueueFile(tmp_path / "queue.db")
    await queue_file.send("x")
    later = sqlite3.connect(queue_file.path)
    later.execute("PRAGMA user_version = 99")
    later.close()
    with pytest.raises(SourceError, match="queue format 99"):
        async with queue_file.source():
            pass


async def test_a_folder_where_a_file_should_be_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "queue.db").mkdir()
    with pytest.raises(SourceUnavailable, match="unable to open"):
        async with QueueFile(tmp_path / "queue.db").source():
            pass


async def test_a_file_below_a_file_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    with pytest.raises(SourceUnavailable, match="plain"):
        async with QueueFile(tmp_path / "plain" / "queue.db").source():
            pass


async def test_a_send_is_on_disk_when_it_returns_and_nobody_waits_for_that_with_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue_file = QueueFile(tmp_path / "queue.db")
    async with queue_file.publisher() as publisher, queue_file.source() as source:
        synced: list[int] = []

        def sync(fd: int) -> None:
            # The lock is free, and the message committed, while the disk is waited for.
            with sqlite3.connect(tmp_path / "queue.db", timeout=0, isolation_level=None) as other:
                other.execute("BEGIN IMMEDIATE")
                synced.append(other.execute("SELECT count(*) FROM messages").fetchone()[0])
                other.execute("ROLLBACK")
            assert os.path.realpath(f"/proc/self/fd/{fd}").endswith("queue.db-wal")

        monkeypatch.setattr(os, "fdatasync", sync)
        await publisher.publish([Outgoing("1", b"a")])
        assert synced == [1]
        await source.ack(held(await source.poll(1, 0)))
        assert synced == [1], "an ack may be lost: it is said again"
