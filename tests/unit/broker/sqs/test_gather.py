"""Calls that go together: each asker has his results, and what is heavy goes in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fleet.broker.sqs.gather import Gather


class Called:
    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.may_go_on = asyncio.Event()

    async def __call__(self, items: Sequence[int]) -> list[int]:
        self.calls.append(list(items))
        await self.may_go_on.wait()
        if -1 in items:
            raise ValueError("minus one")
        return [item * 10 for item in items]


async def asked(gather: Gather[int, int], *askers: Sequence[int]) -> list[Sequence[int] | BaseException]:
    tasks = [asyncio.create_task(gather.ask(items)) for items in askers]
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_is_asked_meanwhile_goes_with_the_next_call() -> None:
    called = Called()
    called.may_go_on.set()
    assert await asked(Gather(called, most=3), [1], [2, 3], [4]) == [[10], [20, 30], [40]]
    assert called.calls == [[1, 2, 3], [4]]


async def test_what_is_heavy_goes_in_parts_and_never_not_at_all() -> None:
    called = Called()
    called.may_go_on.set()
    assert await asked(Gather(called, most=10, weigh=lambda item: item), [4], [5], [6], [50], [1]) == [
        [40],
        [50],
        [60],
        [500],
        [10],
    ]
    assert called.calls == [[4, 5], [6], [50], [1]]


async def test_an_error_is_of_those_who_went_together_and_of_nobody_else() -> None:
    called = Called()
    called.may_go_on.set()
    first, other, last = await asked(Gather(called, most=2), [1], [-1], [3])
    assert isinstance(first, ValueError) and isinstance(other, ValueError)
    assert last == [30]


async def test_an_asker_who_leaves_takes_nobody_along() -> None:
    called = Called()
    gather = Gather(called, most=10)
    leaving, staying = asyncio.create_task(gather.ask([1])), asyncio.create_task(gather.ask([2]))
    await asyncio.sleep(0)
    leaving.cancel()
    called.may_go_on.set()
    assert await staying == [20]
    with pytest.raises(asyncio.CancelledError):
        await leaving
