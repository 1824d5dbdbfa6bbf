"""Parts run beside each other as far as there is room, their output is kept apart, and a stop ends them in order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.suites.lanes import Lanes
from tests.suites.parts import Part
from tests.waiting import eventually

MEETS = """
import pathlib, time
def test_it_meets_the_other():
    pathlib.Path({mine!r}).touch()
    until = time.monotonic() + 30
    while not pathlib.Path({other!r}).exists():
        assert time.monotonic() < until
    print("words of {name}")
    assert {passes}
"""
WAITS = """
import pathlib, time, pytest
@pytest.fixture
def server():
    pathlib.Path({begun!r}).touch()
    yield
    pathlib.Path({ended!r}).touch()
def test_it_waits(server):
    time.sleep(60)
"""


@dataclass(frozen=True, slots=True)
class Made(Part):
    """Of one file that a test has made."""

    file: Path = Path()

    @property
    def arguments(self) -> list[str]:
        return [str(self.file)]


def made(folder: Path, name: str, program: str) -> Part:
    file = folder / f"test_{name}.py"
    file.write_text(program)
    return Made(name, file=file)


def lanes_of(folder: Path, *parts: Part) -> Lanes:
    (folder / "runs").mkdir()
    return Lanes(parts, ["-p", "no:cacheprovider"], jobs=2, folder=folder / "runs")


async def test_two_run_at_once_and_what_each_says_stands_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    lanes = lanes_of(
        tmp_path,
        made(tmp_path, "one", MEETS.format(mine=one, other=two, name="one", passes=False)),
        made(tmp_path, "two", MEETS.format(mine=two, other=one, name="two", passes=True)),
    )
    await lanes.run()
    assert [run.status for run in lanes.runs] == [1, 0]
    assert [run.far() for run in lanes.runs] == ["one 1 of 1", "two 1 of 1"]
    said = capsys.readouterr().out
    for name in ("one", "two"):
        assert f"{name} begins\n" in said and f"{name} has ended, after" in said
    of_one = said.partition("== one\n")[2].partition("== two\n")[0]
    assert "words of one" in of_one and "1 failed" in of_one and "1 passed" not in of_one


async def test_who_is_stopped_ends_what_has_begun_and_begins_nothing_more(tmp_path: Path) -> None:
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    waits = WAITS.format(begun=str(begun), ended=str(ended))
    lanes = lanes_of(tmp_path, *(made(tmp_path, name, waits) for name in ("one", "two", "three")))
    running = asyncio.create_task(lanes.run())
    await eventually(begun.exists, within_s=30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.exists()
    assert not lanes.runs[2].folder.exists()


def test_as_many_begin_as_there_is_room_for_and_who_is_alone_waits_for_all_to_end(tmp_path: Path) -> None:
    parts = [
        Part("busy", cores=1.5),
        Part("busy too", cores=1.5),
        Part("waits", cores=0.5),
        Part("gives way", cores=0.0),
        Part("alone", is_alone=True),
    ]
    lanes = Lanes(parts, [], jobs=4, cores=2, folder=tmp_path)

    def chosen(*running: str) -> str | None:
        lanes._waiting = [run for run in lanes.runs if run.part.suite not in running]
        found = lanes._next([run for run in lanes.runs if run.part.suite in running])
        return None if found is None else found.part.suite

    assert chosen() == "busy"
    assert chosen("busy") == "waits"
    assert chosen("busy", "waits") == "gives way"
    assert chosen("busy", "waits", "gives way") is None
    assert chosen("waits", "gives way", "busy too") is None
    lanes._waiting = [lanes.runs[-1]]
    assert lanes._next(lanes.runs[:1]) is None
    assert lanes._next([]) is lanes.runs[-1]
    assert lanes._next([lanes.runs[-1]]) is None
