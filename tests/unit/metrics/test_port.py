"""One process's counters, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import requests

from fleet.errors import InvalidConfig
from fleet.metrics.counters import Counted
from fleet.metrics.port import serve_metrics
from tests.servers.ports import free_port
from tests.waiting import answered


async def counted() -> Counted:
    return {
        ("pool", "P"): {"SUCCESS": 3, "RATE_LIMITED": 2},
        ("queue", "q"): {"received": 5},
        ("process", "worker"): {"leases_lost": 1},
        ("process", "server"): {"attempt.SUCCESS": 7, "refused.busy": 4},
        ("process", "feed"): {"sent": 9},
    }


@asynccontextmanager
async def listening() -> AsyncIterator[str]:
    port = free_port()
    task = asyncio.create_task(serve_metrics(port, counted))
    # It listens as soon as it is asked: nothing tells when.
    _, writer = await answered(partial(asyncio.open_connection, "127.0.0.1", port), ConnectionRefusedError)
    writer.close()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_what_was_counted_is_shown() -> None:
    async with listening() as url:
        answer = await asyncio.to_thread(requests.get, f"{url}/metrics", timeout=5)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert {
        'fleet_messages_total{pool="P",outcome="SUCCESS"} 3',
        'fleet_pool_rate_limited_total{pool="P"} 2',
        'fleet_queue_received_total{queue="q"} 5',
        'fleet_queue_nacked_total{queue="q"} 0',
        'fleet_leases_lost_total{kind="group"} 1',
        'fleet_jobs_attempts_total{outcome="SUCCESS"} 7',
        'fleet_jobs_claims_refused_total{why="busy"} 4',
        "fleet_feed_sent_total 9",
    } <= set(answer.text.splitlines())


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/", 404), ("POST", "/metrics", 405)])
async def test_anything_else_is_refused(method: str, path: str, status: int) -> None:
    async with listening() as url:
        answer = await asyncio.to_thread(requests.request, method, url + path, timeout=5)
    assert answer.status_code == status


async def test_a_port_that_is_taken_is_named() -> None:
    async with listening() as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(InvalidConfig, match=f"metrics port {port}: "):
            await serve_metrics(port, counted)
