"""Redis emptied, restarted, stopped and filled in the middle of a run."""

from __future__ import annotations

import time
from pathlib import Path

from fleet.state.keys import FleetKeys, PoolKeys
from tests.chaos.test_storm import judge
from tests.servers.local import running_redis
from tests.stage import POOL, Stage, a_stage
from tests.waiting import let_pass, until

MESSAGES, GROUPS = 2_000, 50


def test_flushall_loses_nothing_that_the_source_holds(tmp_path: Path) -> None:
    with a_stage(tmp_path, ttl_ms=1000, visibility_s=4) as stage:
        _begin(stage)
        _wait_for(stage, MESSAGES // 4)
        with stage.client() as client:
            epoch_before = int(client.hget(PoolKeys(POOL).epochs, "last") or 0)
            client.flushall()
            flushed_at = time.monotonic()
            until(lambda: bool(client.hget(FleetKeys.config, "revision")), 10, stage.describe)
            assert time.monotonic() - flushed_at < 5
        _wait_for(stage, MESSAGES // 2)
        with stage.client() as client:
            assert int(client.hget(PoolKeys(POOL).epochs, "last") or 0) > epoch_before
        stage.wait_drained(90)
        _judge_but_duplicates(stage)


def test_a_redis_that_comes_back_empty_loses_nothing_that_the_source_holds(tmp_path: Path) -> None:
    with a_stage(tmp_path, ttl_ms=1000, visibility_s=4) as stage:
        _begin(stage)
        _wait_for(stage, MESSAGES // 4)
        stage.redis_server.server.kill()
        with running_redis(port=stage.redis_server.port) as again:
            stage.redis_server = again
            stage.wait_drained(90)
            _judge_but_duplicates(stage)
            stage.stop()


def test_a_redis_that_hangs_for_longer_than_the_leases_costs_no_more_than_what_was_in_flight(tmp_path: Path) -> None:
    with a_stage(tmp_path, ttl_ms=1000, visibility_s=10) as stage:
        _begin(stage, latency_ms=300)
        _wait_for(stage, MESSAGES // 4)
        for worker in stage.workers():
            stage.note_doubt(worker)
        stage.redis_server.server.pause()
        let_pass(3 * stage.ttl_ms / 1000)
        stage.redis_server.server.resume()
        stage.wait_drained(90)
        verdict = stage.verdict()
        print(verdict.table())
        assert (verdict.lost, verdict.inversions, verdict.overlaps) == (0, 0, 0), verdict.examples
        # In flight when it hung, and what was sent in the moment until that was noticed; not what leases would allow.
        assert verdict.duplicates <= 2 * GROUPS
        assert stage.leftover_keys() == []


def test_a_full_redis_goes_on_settling_and_loses_nothing(tmp_path: Path) -> None:
    with a_stage(tmp_path, ttl_ms=1000, visibility_s=10) as stage:
        _begin(stage)
        _wait_for(stage, MESSAGES // 4)
        with stage.client() as client:
            client.config_set("maxmemory", str(int(client.info("memory")["used_memory"]) - 100_000))
            before = stage.ended()
            let_pass(3)
            assert stage.ended() > before, "deliveries stood still while Redis was full"
            client.config_set("maxmemory", "0")
        stage.wait_drained(90)
        judge(stage)


def _begin(stage: Stage, latency_ms: int = 20) -> None:
    stage.start_endpoint(latency_ms=latency_ms)
    stage.configure()
    stage.start("coordinator")
    stage.start("worker")
    stage.start("worker")
    stage.wait_up()
    stage.send_messages(MESSAGES, GROUPS)


def _wait_for(stage: Stage, delivered: int) -> None:
    until(lambda: stage.ended() >= delivered, 60, stage.describe, every_s=0.05)


def _judge_but_duplicates(stage: Stage) -> None:
    """What had been delivered and not acked at the source is delivered again: Redis alone knew of it."""
    verdict = stage.verdict()
    print(verdict.table())
    assert verdict.lost == 0, verdict.examples
    assert verdict.inversions == 0, verdict.examples
    assert verdict.overlaps == 0, verdict.examples
    assert verdict.sent == verdict.accepted == stage.sent
    assert stage.leftover_keys() == []
