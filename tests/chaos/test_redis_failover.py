"""A Redis that is replaced, refuses or freezes under load, with real servers and a whole fleet of real processes.

No process ends, deliveries go on within five seconds of Redis being usable, and nothing that the replica had is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.operate.journal import End, read
from fleet.state.keys import PoolKeys, QueueKeys
from tests.servers.local import RedisServer, running_redis
from tests.servers.proxy import proxied
from tests.servers.refusing import REFUSALS
from tests.servers.sentinels import running_sentinels
from tests.stage import POOL, QUEUE, Stage, a_stage
from tests.waiting import let_pass, until
from workers.exchange import STALL_MS

RESUMES_S = 5.0
LATENCY_MS = 40
LAG_MS = 500.0
"""What of the last outcomes a replica may not have had, on a busy machine."""

SIZES = [
    pytest.param(3_000, id="short"),
    pytest.param(40_000, id="whole", marks=pytest.mark.long),
]
Trouble = Callable[[Stage], float]
"""Makes it and ends it. Returns since when the state is not what it was (ms), 0 where nothing of it can be lost."""


@pytest.mark.parametrize("messages", SIZES)
@pytest.mark.parametrize("killed", [False, True], ids=["demoted", "killed"])
def test_a_master_that_sentinels_replace(tmp_path: Path, killed: bool, messages: int) -> None:
    with running_sentinels(tmp_path) as watched:

        def trouble(stage: Stage) -> float:
            watched.wait_in_sync()
            split_ms = time.time() * 1000
            if killed:
                watched.servers[0].server.kill()
                stage.redis_server = watched.wait_for_another(watched.servers[0])
            else:
                stage.redis_server = watched.fail_over()
            return split_ms

        with a_stage(tmp_path, redis_server=watched.servers[0], ttl_ms=1500, visibility_s=6) as stage:
            stage.far_redis_url = watched.url
            _through(stage, trouble, messages)


@pytest.mark.parametrize("messages", SIZES)
@pytest.mark.parametrize("killed", [False, True], ids=["demoted", "killed"])
def test_a_master_whose_address_is_moved(tmp_path: Path, killed: bool, messages: int) -> None:
    with (
        running_redis() as first,
        running_redis("--replicaof", "127.0.0.1", str(first.port)) as second,
        proxied(first.port) as proxy,
    ):

        def trouble(stage: Stage) -> float:
            split_ms = time.time() * 1000
            if killed:
                first.server.kill()
            else:
                _follow(first, second)
            with second.client() as admin:
                admin.execute_command("REPLICAOF", "NO", "ONE")
            proxy.move(second.port)
            stage.redis_server = second
            return split_ms

        until(lambda: _is_replica(second), 20, lambda: "no replica")
        with a_stage(tmp_path, redis_server=first, ttl_ms=1500, visibility_s=6) as stage:
            stage.far_redis_url = f"redis://127.0.0.1:{proxy.port}/0"
            _through(stage, trouble, messages)


@pytest.mark.parametrize("messages", SIZES)
@pytest.mark.parametrize("code", REFUSALS)
def test_a_redis_that_refuses_for_some_seconds(tmp_path: Path, code: str, messages: int) -> None:
    def trouble(stage: Stage) -> float:
        with REFUSALS[code](stage.redis_server):
            let_pass(2 * stage.ttl_ms / 1000)
        return 0.0

    with a_stage(tmp_path, ttl_ms=1500, visibility_s=10) as stage:
        _through(stage, trouble, messages)


@pytest.mark.parametrize("messages", SIZES)
def test_a_redis_that_is_frozen_for_fifteen_seconds(tmp_path: Path, messages: int) -> None:
    def trouble(stage: Stage) -> float:
        stage.redis_server.server.pause()
        let_pass(15)
        stage.redis_server.server.resume()
        return 0.0

    with a_stage(tmp_path, ttl_ms=1500, visibility_s=30) as stage:
        # Nobody is refused: that it is away shows by the time that an answer takes.
        _through(stage, trouble, messages, each=2 + STALL_MS / LATENCY_MS)


def _through(stage: Stage, trouble: Trouble, messages: int, *, each: float = 2) -> None:
    """`each`: how many messages of a group may be under way until it is noticed that Redis is away."""
    stage.start_endpoint(latency_ms=LATENCY_MS)
    stage.configure()
    for role in ("coordinator", "coordinator", "worker", "worker"):
        stage.start(role)
    stage.start("server", "--port", "0")
    stage.wait_up()
    stage.send_messages(messages, groups=stage.concurrency)
    until(lambda: stage.ended() >= messages // 4, 60, stage.describe, every_s=0.05)
    split_ms = trouble(stage)
    usable_ms = time.time() * 1000
    until(lambda: _ends(stage, usable_ms) > stage.concurrency, 60, stage.describe, every_s=0.02)
    resumed_s = time.time() - usable_ms / 1000
    # Of what is acked at its source the new master may track some still: that goes as a phantom after a minute.
    until(lambda: _is_delivered(stage), 90, stage.describe, every_s=0.1)
    verdict = stage.verdict()
    print(verdict.table())
    # What was under way when Redis went, and what was sent until that was noticed; of what was settled after the split
    # the new master knows nothing.
    in_flight = each * stage.concurrency + (_ends(stage, split_ms - LAG_MS, usable_ms) if split_ms else 0)
    print(f"resumed after {resumed_s:.2f} s; {verdict.duplicates} duplicates, {in_flight} in flight")
    assert [m.text()[-2000:] for m in stage.members if not m.alive] == []
    assert resumed_s < RESUMES_S
    assert (verdict.sent, verdict.accepted) == (stage.sent, stage.sent)
    assert (verdict.lost, verdict.inversions) == (0, 0), verdict.examples
    assert verdict.duplicates <= in_flight
    assert stage.leftover_keys() == []


def _is_delivered(stage: Stage) -> bool:
    keys = PoolKeys(POOL)
    with stage.client() as client:
        if client.exists(keys.entries, keys.outboxes, keys.leases, QueueKeys(QUEUE).settled):
            return False
    depth = stage.depth()
    return depth.waiting + depth.invisible == 0


def _ends(stage: Stage, since_ms: float, until_ms: float = float("inf")) -> int:
    """Deliveries that ended well in that time."""
    records = read(stage.endpoint_journal)
    return sum(isinstance(r, End) and r.status == 200 and since_ms <= r.t <= until_ms for r in records)


def _is_replica(server: RedisServer) -> bool:
    with server.client() as admin:
        found = admin.info("replication")
        return bool(found["role"] == "slave" and found["master_link_status"] == "up")


def _follow(server: RedisServer, other: RedisServer) -> None:
    with server.client() as admin:
        admin.execute_command("REPLICAOF", "127.0.0.1", other.port)
