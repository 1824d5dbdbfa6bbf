"""The cost of a call goes by what it returns. Counted in steps of SQLite's machine: no stopwatch, no noise."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fleet.sources.base import Outgoing
from fleet.sources.sqlite.source import SqliteSource
from tests.messages import held
from tests.unit.sources.sqlite.queue_file import QueueFile


class Steps:
    def __init__(self, source: SqliteSource) -> None:
        self._file = source._file
        self._count = 0

    async def start(self) -> None:
        self._count = 0
        await asyncio.wrap_future(self._file.submit(lambda db: db.set_progress_handler(self._step, 10)))

    def _step(self) -> int:
        self._count += 10
        return 0

    async def stop(self) -> int:
        await asyncio.wrap_future(self._file.submit(lambda db: db.set_progress_handler(None, 10)))
        return self._count


async def _steps(folder: Path, *, groups: int, per_group: int, leased: int = 0, delayed: int = 0) -> list[int]:
    """Steps of a poll for 64, the ack of half, the nack of the rest, and an empty-handed poll's depth."""
    queue_file = QueueFile(folder / f"{groups}-{per_group}-{leased}-{delayed}.db")
    async with queue_file.publisher() as publisher, queue_file.source() as source:
        for _ in range(per_group):
            await publisher.publish([Outgoing(id="x", body=b"x", group=f"{n}") for n in range(groups)])
        await publisher.publish([Outgoing(id="x", body=b"x", delay_ms=60_000 + n % 50) for n in range(delayed)])
        await source.poll(leased, 0)
        steps = Steps(source)
        await steps.start()
        received = await source.poll(64, 0)
        poll = await steps.stop()
        assert len(received) == 64
        await steps.start()
        await source.ack(held(received[:32]))
        ack = await steps.stop()
        await steps.start()
        await source.nack([(one, 500) for one in held(received[32:])])
        nack = await steps.stop()
        await steps.start()
        await source.depth()
        return [poll, ack, nack, await steps.stop()]


async def test_a_deep_backlog_makes_nothing_dearer(tmp_path: Path) -> None:
    small = await _steps(tmp_path, groups=100, per_group=5)
    large = await _steps(tmp_path, groups=100, per_group=200)
    assert all(b <= a * 1.3 + 100 for a, b in zip(small[:3], large[:3], strict=True)), (small, large)
    assert large[3] <= 20_000 / 10, large  # nobody counts 20,000 messages


async def test_many_groups_make_nothing_dearer(tmp_path: Path) -> None:
    small = await _steps(tmp_path, groups=100, per_group=3)
    large = await _steps(tmp_path, groups=6_000, per_group=3)
    assert all(b <= a * 1.3 + 100 for a, b in zip(small[:3], large[:3], strict=True)), (small, large)


async def test_invisible_and_held_messages_are_not_looked_at(tmp_path: Path) -> None:
    small = await _steps(tmp_path, groups=1_000, per_group=3, leased=10)
    large = await _steps(tmp_path, groups=1_000, per_group=3, leased=900, delayed=5_000)
    assert all(b <= a * 1.3 + 100 for a, b in zip(small[:3], large[:3], strict=True)), (small, large)


@pytest.mark.parametrize("backlog", [100, 5_000])
async def test_one_group_costs_the_same_whatever_is_behind(tmp_path: Path, backlog: int) -> None:
    shallow = await _steps(tmp_path, groups=1, per_group=70)
    queue_file = QueueFile(tmp_path / "deep.db")
    async with queue_file.publisher() as publisher, queue_file.source() as source:
        await publisher.publish([Outgoing(id="x", body=b"x", group="g") for _ in range(backlog)])
        steps = Steps(source)
        await steps.start()
        assert len(await source.poll(64, 0)) == 64
        assert await steps.stop() <= shallow[0] * 1.2 + 100
