"""Every kind of queue under a whole fleet: owners die, the line is cut, the broker is killed. Nothing is lost.

What a test proves of each kind are rows of the table, beside what `test_sources.py` proves of the source alone.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleet.operate import views
from fleet.operate.verify import Judgement
from fleet.sources.base import Outgoing
from fleet.state.connect import connected
from fleet.state.keys import QueueKeys
from tests.conformance.rows import rows
from tests.member import Member
from tests.servers.brokers import BROKERS, UNORDERED, Broker, Persistent
from tests.stage import POOL, QUEUE, Stage, a_stage
from tests.waiting import let_pass, until

MESSAGES, GROUPS = 400, 40
TTL_MS, VISIBILITY_S = 1000, 5
CUT_S = 10.0
DRAIN_S = 120.0


@contextmanager
def a_fleet(
    tmp_path: Path, kind: str, *, visibility_s: int = VISIBILITY_S, latency_ms: int = 5
) -> Iterator[tuple[Stage, Broker]]:
    with (
        BROKERS[kind](tmp_path) as broker,
        a_stage(
            tmp_path,
            ttl_ms=TTL_MS,
            visibility_s=visibility_s,
            concurrency=20,
            pool_options={"onFailure": "hold"},
            redis_server=broker.redis_server,
            far_redis_url=broker.far_redis_url,
            source_uri=broker.uri,
            near_uri=broker.near_uri,
            send_uri=broker.send_uri,
        ) as stage,
    ):
        stage.start_endpoint(latency_ms=latency_ms)
        stage.configure()
        yield stage, broker


def judge(stage: Stage, kind: str) -> Judgement:
    verdict = stage.verdict()
    print(f"{kind}\n{verdict.table()}")
    assert (verdict.sent, verdict.accepted, verdict.lost) == (stage.sent, stage.sent, 0), verdict.examples
    assert verdict.overlaps == 0, verdict.examples
    if kind not in UNORDERED:
        assert verdict.inversions == 0, verdict.examples
    assert stage.leftover_keys() == []
    return verdict


def wait_for(stage: Stage, count: int) -> None:
    until(lambda: stage.ended() >= count, DRAIN_S, stage.describe, every_s=0.05)


def at_work(stage: Stage) -> Member:
    """The coordinator of a fleet that has delivered a part of what it was sent."""
    stage.start("worker")
    coordinator = stage.start("coordinator")
    stage.send_messages(MESSAGES, GROUPS)
    wait_for(stage, MESSAGES // 4)
    return coordinator


def well(coordinator: Member) -> None:
    assert coordinator.alive
    assert "Traceback" not in coordinator.text()


@rows("an owner killed in mid-batch loses nothing", ordered="an owner killed in mid-batch keeps the order")
@pytest.mark.parametrize("place", ["polled", "tracked", "settled-read", "acked-at-source"])
def test_an_owner_is_killed_in_mid_batch(tmp_path: Path, kind: str, place: str) -> None:
    with a_fleet(tmp_path, kind) as (stage, _):
        stage.start("worker")
        stage.send_messages(MESSAGES, GROUPS)
        victim = stage.start("coordinator", failpoint=f"{place}:kill:2")
        until(lambda: not victim.alive, 60, stage.describe)
        stage.start("coordinator")
        stage.send_messages(MESSAGES // 4, GROUPS)
        stage.wait_drained(DRAIN_S)
        judge(stage, kind)


@rows("a line cut for ten seconds loses nothing", ordered="a line cut for ten seconds keeps the order")
def test_the_line_to_the_broker_is_cut_for_ten_seconds(tmp_path: Path, kind: str) -> None:
    with a_fleet(tmp_path, kind) as (stage, broker):
        assert broker.line is not None
        coordinator = at_work(stage)
        broker.line.cut()
        mended = time.monotonic() + CUT_S
        stage.send_messages(MESSAGES // 4, GROUPS)
        let_pass(mended - time.monotonic())
        broker.line.mend()
        stage.wait_drained(DRAIN_S)
        judge(stage, kind)
        well(coordinator)


@rows(
    "a broker killed while it is sent to and read, and started again, loses nothing",
    ordered="a broker killed and started again keeps the order",
)
def test_the_broker_is_killed_and_started_again(tmp_path: Path, kind: str) -> None:
    with a_fleet(tmp_path, kind) as (stage, broker):
        assert broker.restart is not None
        coordinator = at_work(stage)
        publisher = Persistent(stage.publisher())
        with ThreadPoolExecutor(1) as sender:
            sending = sender.submit(stage.send_messages, MESSAGES, GROUPS, batch=1, publisher=publisher)
            sent, before = stage.sent_journal, stage.sent_journal.stat().st_size
            until(lambda: sent.stat().st_size > before, 30, stage.describe, every_s=0.001)
            assert not sending.done()
            broker.restart()
            sending.result(60)
        assert publisher.again, "nobody noticed"
        stage.wait_drained(DRAIN_S)
        judge(stage, kind)
        well(coordinator)


@rows(
    "of two coordinators one reads, and the other at once when that one stops",
    "a coordinator that stops makes nothing come twice",
)
def test_of_two_coordinators_one_reads_and_the_other_goes_on_when_it_stops(tmp_path: Path, kind: str) -> None:
    with a_fleet(tmp_path, kind) as (stage, _):
        stage.start("worker")
        first = stage.start("coordinator")
        until(lambda: "owns queue" in first.text(), 30, stage.describe)
        second = stage.start("coordinator")
        stage.send_messages(MESSAGES, GROUPS)
        wait_for(stage, MESSAGES // 4)
        assert "owns queue" not in second.text()
        first.send(signal.SIGTERM)
        until(lambda: "owns queue" in second.text(), 5, stage.describe)
        until(lambda: not first.alive, 30, stage.describe)
        assert first.process.returncode == 0
        stage.send_messages(MESSAGES // 4, GROUPS)
        stage.wait_drained(DRAIN_S)
        verdict = judge(stage, kind)
        assert verdict.duplicates == 0, verdict.examples
        assert second.alive


@rows(
    "a malformed body is acked and kept as a dead letter",
    "a body over 256 KiB is acked and kept as a dead letter",
    "its consumer is well by its last poll",
)
def test_what_is_no_message_is_acked_and_kept_as_a_dead_letter(tmp_path: Path, kind: str) -> None:
    with a_fleet(tmp_path, kind) as (stage, _):
        good = {"poolCode": POOL, "mediationTarget": stage.endpoint_url, "messageGroupId": "g"}
        too_large = json.dumps({**good, "id": "large", "comment": "x" * 260 * 1024}).encode()
        stage.start("worker")
        stage.start("coordinator")

        async def send() -> None:
            publisher = stage.publisher()
            await publisher.open()
            assert not any(
                await publisher.publish([Outgoing("bad", b"no json", "g"), Outgoing("large", too_large, "g")])
            )
            await publisher.close()

        asyncio.run(send())
        stage.send_messages(20, 2)
        stage.wait_drained(60)
        judge(stage, kind)
        with stage.client() as client:
            letters = [json.loads(letter) for letter in client.lrange(QueueKeys(QUEUE).dead, 0, -1)]
        assert sorted(letter["bodyBytes"] for letter in letters) == [len(b"no json"), len(too_large)]

        until(lambda: asyncio.run(health(stage))["msSinceLastPoll"] is not None, 30, stage.describe)
        now = asyncio.run(health(stage))
        assert now["isRunning"] and now["isHealthy"], now
        assert now["msSinceLastPoll"] < 60_000, now


async def health(stage: Stage) -> dict[str, Any]:
    async with connected(stage.redis_server.url) as client:
        return (await views.consumers_json(client))[QUEUE]


@rows("a delivery longer than the visibility timeout is extended, and comes once")
def test_what_takes_longer_than_the_visibility_timeout_is_delivered_once(tmp_path: Path, kind: str) -> None:
    with a_fleet(tmp_path, kind, visibility_s=2, latency_ms=4500) as (stage, _):
        stage.start("worker")
        stage.start("coordinator")
        stage.send_messages(4, 4)
        stage.wait_drained(60)
        assert judge(stage, kind).duplicates == 0
