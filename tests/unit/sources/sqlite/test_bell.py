from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.sources.sqlite import bell as file_bell
from fleet.sources.sqlite import source as sqlite
from fleet.sources.sqlite.bell import FileBell
from tests.messages import bodies
from tests.unit.sources.sqlite.queue_file import QueueFile


async def test_a_touch_by_another_process_wakes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    bell = FileBell(path=path)
    bell.open()
    assert bell.hears_others
    wait = asyncio.create_task(bell.wait(after=bell.rings, timeout_s=60))
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", f"import os; os.utime({str(path)!r})"], check=True)
    await asyncio.wait_for(wait, 5)
    bell.close()


async def test_a_ring_between_looking_and_waiting_is_not_missed(tmp_path: Path) -> None:
    bell = FileBell(path=tmp_path / "file")
    rings = bell.rings
    bell.ring()
    await asyncio.wait_for(bell.wait(after=rings, timeout_s=60), 5)


async def test_a_wait_ends_with_its_time(tmp_path: Path) -> None:
    bell = FileBell(path=tmp_path / "file")
    await asyncio.wait_for(bell.wait(after=bell.rings, timeout_s=0.01), 5)


async def test_ringing_at_a_file_that_is_gone_is_no_error(tmp_path: Path) -> None:
    file_bell.ring(tmp_path / "gone")


async def comes_to_a_poll_that_waits(queue_file: QueueFile) -> None:
    async with queue_file.source() as source:
        poll = asyncio.create_task(source.poll(1, 60_000))
        assert await source.poll(1, 0) == []
        await queue_file.send("x")
        assert bodies(await asyncio.wait_for(poll, 5)) == ["x"]


async def test_a_poll_hears_a_send_and_does_not_find_it_by_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue_file = QueueFile(tmp_path / "queue.db")
    monkeypatch.setattr(sqlite, "_LOOK_S", 60)
    await comes_to_a_poll_that_waits(queue_file)


async def test_a_poll_finds_what_was_sent_without_a_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue_file = QueueFile(tmp_path / "queue.db")
    monkeypatch.setattr(file_bell, "ring", lambda path: None)
    await comes_to_a_poll_that_waits(queue_file)


async def test_a_process_without_inotify_still_wakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue_file = QueueFile(tmp_path / "queue.db")
    monkeypatch.setattr(file_bell._libc, "inotify_init1", lambda flags: -1)
    await comes_to_a_poll_that_waits(queue_file)
