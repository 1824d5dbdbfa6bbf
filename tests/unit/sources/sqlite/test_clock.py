"""A queue file's own time: no step of the wall clock moves it, and a boot of the machine does not take it back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fleet.sources.sqlite import clock as sqlite_clock
from fleet.sources.sqlite import look as sqlite_look
from fleet.sources.sqlite.address import QueueAddress
from tests.unit.sources.sqlite.world import World, bodies, held

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(sqlite_clock, "_boot_id", lambda: "first boot")
    return World(tmp_path / "queue.db")


def boot(world: World, monkeypatch: pytest.MonkeyPatch, *, away_ms: int, wall_step_ms: int = 0) -> None:
    """The machine was off for so long."""
    world.clock.now_ms += away_ms
    world.clock.booted_ms = world.clock.now_ms
    world.clock.step_ms = wall_step_ms
    monkeypatch.setattr(sqlite_clock, "_boot_id", lambda: "another boot")


async def test_what_was_sent_while_the_clock_was_a_day_ahead_is_shown_when_it_is_right_again(world: World) -> None:
    world.clock.step_ms = DAY_MS
    await world.send("1", "2")
    world.clock.step_ms = 0
    async with world.source() as source:
        assert bodies(await source.poll(10, 0)) == ["1", "2"]
        assert (await source.depth()).oldest_s == 0


@pytest.mark.parametrize("step_ms", [DAY_MS, -DAY_MS, 3_600_000])
async def test_a_step_of_the_clock_ends_and_prolongs_no_lease_and_no_delay(world: World, step_ms: int) -> None:
    await world.send("leased")
    await world.send("delayed", group="other", delay_ms=20_000)
    async with world.source(visibility_ms=30_000) as source:
        (first,) = await source.poll(10, 0)
        world.clock.step_ms = step_ms
        await world.send("new", group="new")
        world.clock.now_ms += 19_999
        assert bodies(await source.poll(10, 0)) == ["new"]
        assert (await source.extend(held([first]), 30_000)) == [True]
        world.clock.now_ms += 1
        assert bodies(await source.poll(10, 0)) == ["delayed"]
        # One that opens the file only now is of the same time.
        async with world.source() as another:
            world.clock.now_ms += 29_998
            assert "leased" not in bodies(await another.poll(10, 0))
            world.clock.now_ms += 1
            assert "leased" in bodies(await another.poll(10, 0))


async def test_while_the_machine_was_off_time_has_passed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.send("1")
    async with world.source(visibility_ms=30_000) as source:
        await source.poll(10, 0)
    boot(world, monkeypatch, away_ms=30_000)
    async with world.source() as source:
        assert bodies(await source.poll(10, 0)) == ["1"]


async def test_after_a_boot_with_the_wall_clock_behind_a_file_goes_on_where_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.send("1")
    async with world.source(visibility_ms=30_000) as source:
        world.clock.now_ms += 10 * 60_000
        await source.poll(10, 0)
    boot(world, monkeypatch, away_ms=1_000, wall_step_ms=-DAY_MS)
    async with world.source() as source:
        assert bodies(await source.poll(10, 0)) == []
        world.clock.now_ms += 30_000
        assert bodies(await source.poll(10, 0)) == ["1"]


async def test_a_file_of_an_older_release_goes_on_behind_the_newest_that_was_sent_to_it(world: World) -> None:
    world.clock.step_ms = DAY_MS
    await world.send("1")
    with closing(sqlite3.connect(world.path)) as db:
        db.execute("DROP TABLE clock")
        db.commit()
    world.clock.step_ms = 0
    async with world.source() as source:
        assert bodies(await source.poll(10, 0)) == ["1"]


async def test_people_are_told_times_of_the_wall_clock(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_look, "SystemClock", lambda: world.clock)
    world.clock.step_ms = DAY_MS
    await world.send('{"id":"m","mediationTarget":"http://h/"}', delay_ms=60_000)
    world.clock.step_ms = 0
    found = sqlite_look.find_message(QueueAddress(world.path, "q"), "m")
    assert found is not None and found.visible_at_ms == world.clock.now_ms + 60_000
