"""How a process ends."""

from __future__ import annotations

import asyncio

from fleet.process import Life


async def test_a_task_that_swallows_a_cancellation_is_cancelled_again() -> None:
    life, swallowed = Life(), asyncio.Event()

    async def careless() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.set()
        await asyncio.Event().wait()

    life.spawn(asyncio.ensure_future(careless()))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await life.cancel()
    assert swallowed.is_set()
    assert life.exit_code() == 0


async def test_a_task_that_crashes_ends_the_process_with_exit_code_1() -> None:
    life = Life()

    async def crash() -> None:
        raise RuntimeError("unforeseen")

    life.spawn(asyncio.ensure_future(crash()))
    async with asyncio.timeout(5):
        await life.wait()
    await life.cancel()
    assert life.exit_code() == 1
