"""What a pool, or a message, asks for after a failure: seen at a real endpoint and at the source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.operate.journal import End, read
from fleet.state.keys import PoolKeys, QueueKeys
from tests.stage import POOL, QUEUE, Stage, a_stage
from tests.waiting import until


def _run(stage: Stage, messages: int, groups: int, latency_ms: int = 2) -> None:
    stage.start_endpoint(latency_ms=latency_ms)
    stage.configure()
    stage.send_messages(messages, groups)
    stage.start("coordinator")
    stage.start("worker")


def _nacked(stage: Stage) -> int:
    """Nacks at the source, as the coordinator counts them in its heartbeat."""
    with stage.client() as client:
        records = [json.loads(record) for record in client.hvals("{fleet}:processes")]
    return sum(record.get("counts", {}).get(QUEUE, {}).get("nacked", 0) for record in records)


@pytest.mark.parametrize(
    ("pool", "body"),
    [({"onFailure": "hold"}, {}), ({}, {"dispatchMode": "BLOCK_ON_ERROR"})],
    ids=["pool", "message"],
)
def test_hold_tries_again_in_place_and_nothing_overtakes(
    tmp_path: Path, pool: dict[str, Any], body: dict[str, Any]
) -> None:
    with a_stage(tmp_path, path="/busy", pool_options=pool, body_options=body) as stage:
        _run(stage, messages=60, groups=20)
        stage.wait_drained(90)
        verdict = stage.verdict()
        print(verdict.table())
        assert (verdict.lost, verdict.inversions, verdict.overlaps, verdict.duplicates) == (0, 0, 0, 0)
        assert verdict.requests > verdict.sent, "nothing failed, so nothing was proved"
        assert _nacked(stage) == 0
        assert stage.leftover_keys() == []


@pytest.mark.parametrize(
    ("pool", "body"),
    [({"onFailure": "skip"}, {}), ({}, {"dispatchMode": "NEXT_ON_ERROR"})],
    ids=["pool", "message"],
)
def test_skip_nacks_the_one_and_goes_on_with_the_group(
    tmp_path: Path, pool: dict[str, Any], body: dict[str, Any]
) -> None:
    with a_stage(tmp_path, path="/busy", pool_options=pool, body_options=body) as stage:
        _run(stage, messages=60, groups=6)
        stage.wait_drained(90)
        verdict = stage.verdict()
        assert (verdict.lost, verdict.overlaps, verdict.duplicates) == (0, 0, 0)
        assert verdict.inversions > 0, "nobody went on past a failure"


def test_park_puts_the_message_aside_after_its_tries_and_the_group_goes_on(tmp_path: Path) -> None:
    options = {"onFailure": "park", "parkAfter": 1}
    with a_stage(tmp_path, path="/fail", pool_options=options) as stage:
        # Three attempts each: a fourth message would open the circuit breaker, and then nothing counts.
        _run(stage, messages=3, groups=3)
        stage.wait_drained(60)
        with stage.client() as client:
            letters = [json.loads(letter) for letter in client.lrange(QueueKeys(QUEUE).dead, 0, -1)]
        assert sorted(letter["messageId"] for letter in letters) == [f"message-{i:07d}" for i in range(3)]
        assert {letter["reason"] for letter in letters} == {"HTTP 500"}
        assert {letter["poolCode"] for letter in letters} == {POOL}


def test_immediate_messages_of_one_group_are_delivered_side_by_side(tmp_path: Path) -> None:
    with a_stage(tmp_path, body_options={"dispatchMode": "IMMEDIATE"}) as stage:
        _run(stage, messages=40, groups=1, latency_ms=500)
        stage.wait_drained(60)
        records = list(read(stage.endpoint_journal))
        first_end = next(place for place, record in enumerate(records) if isinstance(record, End))
        assert first_end >= 20, "they ran one after the other"


def test_a_drained_pool_gives_back_what_it_held(tmp_path: Path) -> None:
    with a_stage(tmp_path, path="/fail", pool_options={"onFailure": "hold"}) as stage:
        _run(stage, messages=3, groups=3)
        with stage.client() as client:
            until(lambda: client.zcard(PoolKeys(POOL).later) == 3, 30, stage.describe)
            # Its groups wait for thirty seconds each, and no longer once the pool is going away.
            stage.configure_without_pool()
            until(lambda: not client.exists(PoolKeys(POOL).settings), 15, stage.describe, every_s=0.1)
        until(lambda: _nacked(stage) == 3, 5, stage.describe)
