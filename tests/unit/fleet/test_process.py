"""How a process ends, and what stays of it."""

from __future__ import annotations

import asyncio
from typing import Any

from fleet.process import Heartbeat, Identity, Life
from fleet.state.connect import connected
from fleet.state.registry import Registry
from fleet.state.totals import totals
from tests.servers import RedisServer


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


async def test_what_a_process_counted_stays_in_the_totals_when_it_ends(redis_server: RedisServer) -> None:
    described: dict[str, Any] = {"totals": {"P": {"SUCCESS": 1}}, "histograms": {"wait": {"P": [0, 4]}}}
    async with connected(redis_server.url) as client:
        registry = Registry(client)
        heartbeat = Heartbeat(
            registry=registry, identity=Identity.new("worker"), ttl_ms=5000, describe=lambda: dict(described)
        )
        await heartbeat.beat()
        (record,) = await registry.processes()
        assert "histograms" not in record
        described["totals"] = {"P": {"SUCCESS": 3}}
        await heartbeat.leave()
        assert await registry.processes() == []
        counted = await totals(client)
        assert (counted["pool", "P", "SUCCESS"], counted["wait", "P", "1"]) == (3, 4)
        # How long the scripts took that said so.
        assert {name for kind, name, _ in counted if kind == "redis_call"} >= {"beat", "tally"}
