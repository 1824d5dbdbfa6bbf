"""What a look at all breakers says, and what was heard while it was under way."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from fleet.clock import SystemClock
from fleet.delivery.breaker import PASS, Open
from fleet.delivery.breakers import Breakers
from fleet.state.breakers import BreakerView, SharedBreakers
from fleet.state.scripts import SEP

ORIGIN = "https://a.example"
READ_AT_MS = 1_700_000_000_000


class Board:
    """Redis, as far as one look goes: while it is read something is heard."""

    permit_ms = 1000

    def __init__(self) -> None:
        self.breakers: Breakers | None = None
        self.heard_at_ms = 0
        self.looked = asyncio.Event()

    async def all(self) -> tuple[int, list[BreakerView]]:
        assert self.breakers is not None
        self.breakers.on_message(SEP.join([ORIGIN, "open", str(self.heard_at_ms), "60000", "0"]))
        self.looked.set()
        return READ_AT_MS, []


@pytest.mark.parametrize(("heard_at_ms", "stays_open"), [(READ_AT_MS - 1, False), (READ_AT_MS, True)])
async def test_what_is_heard_of_the_millisecond_of_a_look_is_newer_than_it(heard_at_ms: int, stays_open: bool) -> None:
    board, clock = Board(), SystemClock()
    board.heard_at_ms = heard_at_ms
    breakers = board.breakers = Breakers(shared=cast("SharedBreakers", cast("Any", board)), worker="w", clock=clock)
    running = asyncio.create_task(breakers.run())
    breakers.resync()
    await board.looked.wait()
    await asyncio.sleep(0)
    admitted = breakers.admit(ORIGIN, clock.boot_ms())
    assert isinstance(admitted, Open) if stays_open else admitted is PASS
    running.cancel()
    await asyncio.wait([running])
