"""Work that one process does for all goes on, whatever one round of it meets."""

from __future__ import annotations

import asyncio
import logging

import pytest

from fleet.broker.by_lease import ByLease
from fleet.state.connect import Client
from fleet.state.keys import BrokerKeys

log = logging.getLogger("fleet.sqs")


async def test_a_fault_of_ours_is_logged_and_the_next_round_comes(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    rounds = 0
    is_over = asyncio.Event()

    async def each_second() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise ValueError("what cannot be read")
        is_over.set()

    async def each_minute() -> None:
        raise AssertionError("not within this test")

    upkeep = ByLease(
        client, BrokerKeys.sqs_sweeper, each_second=each_second, each_minute=each_minute, log=log, what="test"
    )
    async with upkeep.running(), asyncio.timeout(10):
        await is_over.wait()
    assert "the upkeep of the test failed" in caplog.text
    assert "what cannot be read" in caplog.text
