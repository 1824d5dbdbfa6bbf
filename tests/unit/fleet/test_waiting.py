"""Waiting: for an event at most so long, and longer after each error."""

from __future__ import annotations

import asyncio

from fleet.waiting import Backoff, cancel, happens


async def test_an_event_is_waited_for_no_longer_than_asked() -> None:
    event = asyncio.Event()
    assert not await happens(event, within_s=0.001)
    asyncio.get_running_loop().call_soon(event.set)
    assert await happens(event, within_s=5)
    assert await happens(event, within_s=None)


async def test_whoever_is_cancelled_while_he_waits_hears_of_it() -> None:
    task = asyncio.create_task(happens(asyncio.Event(), within_s=None))
    await asyncio.sleep(0)
    task.cancel()
    assert (await asyncio.gather(task, return_exceptions=True))[0].__class__ is asyncio.CancelledError


def test_each_pause_is_twice_as_long_as_the_last_up_to_the_most() -> None:
    backoff = Backoff(0.05, 0.3)
    told = [(backoff.is_new, backoff.spend()) for _ in range(5)]
    assert told == [(True, 0.05), (False, 0.1), (False, 0.2), (False, 0.3), (False, 0.3)]
    backoff.renew()
    assert (backoff.is_new, backoff.spend()) == (True, 0.05)


async def test_what_swallows_a_cancellation_is_cancelled_again() -> None:
    cancelled = 0

    async def stubborn() -> None:
        nonlocal cancelled
        while cancelled < 3:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled += 1

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await cancel([task])
    assert (task.done(), cancelled) == (True, 3)
