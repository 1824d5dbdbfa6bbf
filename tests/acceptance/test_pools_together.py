"""Several pools behind one queue: none of them holds up the others, and none is refused what it has room for."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from fleet.sources.base import Outgoing
from fleet.sources.open import open_publisher
from fleet.state.keys import PoolKeys
from tests.stage import Stage, a_stage
from tests.waiting import until


def _send(stage: Stage, pool: str, count: int, groups: int, *, path: str = "/") -> None:
    async def publish() -> None:
        publisher = open_publisher(stage.queue_uri)
        await publisher.open()
        for first in range(0, count, 500):
            batch = []
            for i in range(first, min(first + 500, count)):
                group = f"{pool}-{i % groups}"
                body = {
                    "id": f"{pool}-{stage.sent + i}",
                    "poolCode": pool,
                    "messageGroupId": group,
                    "mediationTarget": f"{stage.endpoint_url}{path}",
                }
                batch.append(Outgoing(str(body["id"]), json.dumps(body).encode(), group))
            assert not any(await publisher.publish(batch))
        await publisher.close()

    asyncio.run(publish())
    stage.sent += count


def _configure(stage: Stage, *pools: dict[str, Any]) -> None:
    stage.write_config(list(pools))
    stage.start("syncer", "--config", str(stage.config))
    with stage.client() as client:
        for pool in pools:
            settings = PoolKeys(pool["code"]).settings
            until(lambda settings=settings: bool(client.exists(settings)), 15, stage.describe)  # type: ignore[misc]


def test_a_busy_pool_is_not_put_off_because_an_idle_one_has_room(tmp_path: Path) -> None:
    with a_stage(tmp_path) as stage:
        stage.start_endpoint(latency_ms=0)
        _configure(stage, {"code": "BUSY", "concurrency": 20}, {"code": "IDLE", "concurrency": 20})
        stage.start("coordinator")
        stage.start("worker")
        _send(stage, "IDLE", 5, 5)
        until(lambda: stage.ended() == 5, 30, stage.describe)
        _send(stage, "BUSY", 6_000, 300)
        begun = time.monotonic()
        until(lambda: stage.ended() == 6_005, 60, stage.describe, every_s=0.1)
        # A single refusal puts its messages off for thirty seconds.
        assert time.monotonic() - begun < 25


def test_a_pool_that_stands_still_does_not_hold_up_another(tmp_path: Path) -> None:
    with a_stage(tmp_path, visibility_s=60) as stage:
        stage.start_endpoint(latency_ms=0)
        _configure(
            stage, {"code": "STILL", "concurrency": 1, "rateLimitPerMinute": 1}, {"code": "QUICK", "concurrency": 20}
        )
        stage.start("coordinator")
        stage.start("worker")
        _send(stage, "STILL", 500, 10)
        _send(stage, "QUICK", 2_000, 100)
        until(lambda: stage.ended() >= 2_000, 60, stage.describe, every_s=0.1)


def test_messages_of_a_pool_that_was_removed_go_to_the_default_pool(tmp_path: Path) -> None:
    with a_stage(tmp_path) as stage:
        stage.start_endpoint(latency_ms=0)
        _configure(stage, {"code": "GONE", "concurrency": 5}, {"code": "STAYS", "concurrency": 5})
        stage.start("coordinator")
        stage.start("worker")
        _send(stage, "GONE", 20, 4)
        until(lambda: stage.ended() == 20, 30, stage.describe)
        stage.write_config([{"code": "STAYS", "concurrency": 5}])
        with stage.client() as client:
            until(lambda: not client.exists(PoolKeys("GONE").settings), 30, stage.describe)
        _send(stage, "GONE", 5, 5)
        until(lambda: stage.ended() == 25, 20, stage.describe)
