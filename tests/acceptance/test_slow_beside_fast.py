"""One queue feeds a slow pool and a fast one: the fast one goes as fast as its own limits let it."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fleet.sources.base import Outgoing
from fleet.state.keys import PoolKeys
from tests.servers.brokers import BROKERS, quick_sqs
from tests.stage import Stage, a_stage
from tests.waiting import until

SLOW, FAST = "SLOW", "FAST"
CONCURRENCY, LATENCY_MS = 4, 40
RATE = CONCURRENCY * 1000 / LATENCY_MS
"""What the fast pool can do at most: a hundred a second."""
MESSAGES, FROM = 480, 160
LATE = {"sqs-fifo": (1000, 400), "door-fifo": (1000, 400)}
"""Of each pool, and from which on the rate is taken: the fast one pays once, with up to a second, when the slow one is
full, which takes 50 of its messages and as many of the other's beside them. FIFO shows it late."""
KINDS = BROKERS | {"sqs": quick_sqs}
"""Moto is slower than the pool."""


def send(stage: Stage, pools: list[str], count: int) -> None:
    """A message for each pool in turn, each in one of many groups."""

    async def publish() -> None:
        publisher = stage.publisher()
        await publisher.open()
        messages = []
        for i in range(count):
            for pool in pools:
                name = f"{pool}-{i}"
                target = f"{stage.endpoint_url}/{'slow' if pool == SLOW else ''}"
                body: dict[str, Any] = {"id": name, "poolCode": pool, "mediationTarget": target}
                body["messageGroupId"] = f"{pool}-{i % 60}"
                messages.append(Outgoing(name, json.dumps(body).encode(), body["messageGroupId"]))
        for first in range(0, len(messages), 500):
            assert not any(await publisher.publish(messages[first : first + 500]))
        await publisher.close()

    asyncio.run(publish())


def fast_ones(stage: Stage) -> int:
    if not stage.endpoint_journal.exists():
        return 0
    return sum(f'"id":"{FAST}-' in line and '"end"' in line for line in stage.endpoint_journal.read_text().splitlines())


def rate(directory: Path, kind: str, pools: list[str]) -> float:
    """Of the fast pool's deliveries, without the first of them."""
    directory.mkdir()
    with ExitStack() as stack:
        broker = stack.enter_context(KINDS[kind](directory))
        stage = stack.enter_context(
            a_stage(
                directory,
                redis_server=broker.redis_server,
                source_uri=broker.uri,
                near_uri=broker.near_uri,
                send_uri=broker.send_uri,
            )
        )
        stage.start_endpoint(latency_ms=LATENCY_MS)
        stage.write_config(
            [{"code": FAST, "concurrency": CONCURRENCY}, {"code": SLOW, "concurrency": 2, "onFailure": "hold"}]
        )
        stage.start("syncer", "--config", str(stage.config))
        with stage.client() as client:
            until(lambda: bool(client.exists(PoolKeys(SLOW).settings)), 15, stage.describe)
        end, begin = LATE.get(kind, (MESSAGES, FROM))
        send(stage, pools, end)
        stage.start("coordinator")
        stage.start("worker")
        until(lambda: fast_ones(stage) >= begin, 60, stage.describe, every_s=0.005)
        begun = time.monotonic()
        until(lambda: fast_ones(stage) >= end, 60, stage.describe, every_s=0.005)
        return (end - begin) / (time.monotonic() - begun)


@pytest.mark.parametrize("kind", KINDS)
def test_the_fast_pool_keeps_its_rate(tmp_path: Path, kind: str) -> None:
    alone = rate(tmp_path / "alone", kind, [FAST])
    beside = rate(tmp_path / "beside", kind, [FAST, SLOW])
    if beside < 0.9 * alone:
        # A machine that stands still for a moment does so once; a slow pool is in the way each time.
        beside = rate(tmp_path / "beside-again", kind, [FAST, SLOW])
    print(f"{kind}: {alone:.0f}/s alone, {beside:.0f}/s beside a slow pool, of {RATE:.0f}/s at most")
    assert alone > 0.8 * RATE, "it is not the pool's own limit that is measured"
    assert beside >= 0.9 * alone
