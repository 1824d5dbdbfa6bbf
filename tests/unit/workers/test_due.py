"""When something falls due in a pool this worker looks, if nobody has asked sooner."""

from __future__ import annotations

import asyncio

import pytest

from workers.due import DueTimer

Step = tuple[str, int | None]


async def looks_after(steps: list[Step], *, stopping: bool = False) -> list[int]:
    """At which ms it looks, of steps that follow each other at once unless time `passes`."""
    loop = asyncio.get_running_loop()
    looks: list[int] = []
    timer = DueTimer(lambda: looks.append(round(loop.time() * 1000)), lambda: stopping)
    for step, ms in steps:
        match step:
            case "told":
                timer.told(ms)
            case "asked":
                timer.asked()
            case "answered":
                timer.answered(ms)
            case "ends":
                timer.end()
            case "passes":
                await asyncio.sleep((ms or 0) / 1000)
    await asyncio.sleep(10)
    return looks


@pytest.mark.parametrize(
    ("steps", "looks"),
    [
        # What somebody's call told.
        ([("told", 100)], [100]),
        ([("told", 100), ("told", 50)], [50]),
        ([("told", 50), ("told", 100)], [50]),
        ([("told", 100), ("passes", 60), ("told", 30)], [90]),
        ([("told", 100), ("passes", 60), ("told", 50)], [100]),
        ([("told", 50), ("told", None)], []),
        # What our own call was answered, which knows all that was said before it went out.
        ([("asked", None), ("answered", 80)], [80]),
        ([("told", 30), ("asked", None), ("answered", 80)], [80]),
        ([("told", 30), ("asked", None), ("answered", None)], []),
        ([("asked", None), ("answered", 20), ("asked", None), ("answered", 80)], [80]),
        # Told while it was under way: whichever comes first.
        ([("asked", None), ("told", 30), ("answered", 80)], [30]),
        ([("asked", None), ("told", 80), ("answered", 30)], [30]),
        ([("asked", None), ("told", 30), ("answered", None)], [30]),
        ([("asked", None), ("told", 30), ("passes", 20), ("answered", 80)], [30]),
        ([("asked", None), ("told", 30), ("told", None), ("answered", 80)], [80]),
        ([("asked", None), ("told", 30), ("passes", 50), ("answered", 80)], [30, 51]),
        # The pool is gone.
        ([("told", 30), ("ends", None)], []),
    ],
)
async def test_it_looks_at_what_falls_due_first(steps: list[Step], looks: list[int]) -> None:
    assert await looks_after(steps) == looks


async def test_who_stops_looks_at_nothing() -> None:
    assert await looks_after([("told", 30), ("asked", None), ("answered", 30)], stopping=True) == []
