"""A queue file's own time: no step of the wall clock moves it, and a boot of the machine does not take it back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fleet.sources.sqlite import clock as sqlite_clock
from fleet.sources.sqlite import look as sqlite_look
from fleet.sources.sqlite.address import QueueAddress
from tests.messages import bodies, held
from tests.unit.sources.sqlite.queue_file import QueueFile

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def queue_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueueFile:
    monkeypatch.setattr(sqlite_clock, "_boot_id", lambda: "first boot")
    return QueueFile(tmp_path / "queue.db")


def boot(queue_file: QueueFile, monkeypatch: pytest.MonkeyPatch, *, away_ms: int, wall_step_ms: int = 0) -> None:
    """The machine was off for so long."""
    queue_file.clock.now_ms += away_ms
    queue_file.clock.booted_ms = queue_file.clock.now_ms
    queue_file.clock.step_ms = wall_step_ms
    monkeypatch.setattr(sqlite_clock, "_boot_id", lambda: "another boot")


async def test_what_was_sent_while_the_clock_was_a_day_ahead_is_shown_when_it_is_right_again(
    queue_file: QueueFile,
) -> None:
    queue_file.clock.step_ms = DAY_MS
    await queue_file.send("1", "2")
    queue_file.clock.step_ms = 0
    async with queue_file.source() as source:
        assert bodies(await source.poll(10, 0)) == ["1", "2"]
        assert (await source.depth()).oldest_s == 0


@pytest.mark.parametrize("step_ms", [DAY_MS, -DAY_MS, 3_600_000])
async def test_a_step_of_the_clock_ends_and_prolongs_no_lease_and_no_delay(queue_file: QueueFile, step_ms: int) -> None:
    await queue_file.send("leased")
    await queue_file.send("delayed", group="other", delay_ms=20_000)
    async with queue_file.source(visibility_ms=30_000) as source:
        (first,) = await source.poll(10, 0)
        queue_file.clock.step_ms = step_ms
        await queue_file.send("new", group="new")
        queue_file.clock.now_ms += 19_999
        assert bodies(await source.poll(10, 0)) == ["new"]
        assert (await source.extend(held([first]), 30_000)) == [True]
        queue_file.clock.now_ms += 1
        assert bodies(await source.poll(10, 0)) == ["delayed"]
        # One that opens the file only now is of the same time.
        async with queue_file.source() as another:
            queue_file.clock.now_ms += 29_998
            assert "leased" not in bodies(await another.poll(10, 0))
            queue_file.clock.now_ms += 1
            assert "leased" in bodies(await another.poll(10, 0))


async def test_while_the_machine_was_off_time_has_passed(
    queue_file: QueueFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue_file.send("1")
    async with queue_file.source(visibility_ms=30_000) as source:
        await source.poll(10, 0)
    boot(queue_file, monkeypatch, away_ms=30_000)
    async with queue_file.source() as source:
        assert bodies(await source.poll(10, 0)) == ["1"]


async def test_after_a_boot_with_the_wall_clock_behind_a_file_goes_on_where_it_was(
    queue_file: QueueFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue_file.send("1")
    async with queue_file.source(visibility_ms=30_000) as source:
        queue_file.clock.now_ms += 10 * 60_000
        await source.poll(10, 0)
    boot(queue_file, monkeypatch, away_ms=1_000, wall_step_ms=-DAY_MS)
    async with queue_file.source() as source:
        assert bodies(await source.poll(10, 0)) == []
        queue_file.clock.now_ms += 30_000
        assert bodies(await source.poll(10, 0)) == ["1"]


async def test_a_file_of_an_older_release_goes_on_behind_the_newest_that_was_sent_to_it(queue_file: QueueFile) -> None:
    queue_file.clock.step_ms = DAY_MS
    await queue_file.send("1")
    with closing(sqlite3.connect(queue_file.path)) as db:
        db.execute("DROP TABLE clock")
        db.commit()
    queue_file.clock.step_ms = 0
    async with queue_file.source() as source:
        assert bodies(await source.poll(10, 0)) == ["1"]


async def test_people_are_told_times_of_the_wall_clock(queue_file: QueueFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_look, "SystemClock", lambda: queue_file.clock)
    queue_file.clock.step_ms = DAY_MS
    await queue_file.send('{"id":"m","mediationTarget":"http://h/"}', delay_ms=60_000)
    queue_file.clock.step_ms = 0
    found = sqlite_look.find_message(QueueAddress(queue_file.path, "q"), "m")
    assert found is not None and found.visible_at_ms == queue_file.clock.now_ms + 60_000
