"""A job's target that fails, with real processes: left alone by all servers, its groups in order when it is back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import requests

from fleet.state.breakers import RULES, SharedBreakers
from fleet.state.connect import connected
from tests.acceptance.office import Office, an_office
from tests.acceptance.webhooks import Target, a_target
from tests.servers.local import RedisServer
from tests.waiting import until


@pytest.fixture
def office(tmp_path: Path, redis_server: RedisServer) -> Office:
    return an_office(tmp_path, redis_server, f"sqlite:///{tmp_path}/jobs.db")


CAPACITY = 400
"""Of a pool that nobody has configured."""
SHUT_MS = 30_000
"""A busy machine takes some ten seconds for the others."""
SPARK_PATIENCE_S = 240.0
"""It starts in seconds where it is quiet, and in minutes where it is not."""


def added(office: Office, target: Target, count: int, **given: Any) -> list[str]:
    """`{}` in a group is the job's number."""
    job = json.dumps({"targetUrl": target.url, "payload": 1, **given})
    lines = "\n".join(job.replace("{}", str(number)) for number in range(count))
    ids: list[str] = office.fleet.run("jobs", "add", "--file", "-", "--json", input_text=lines).document["ids"]
    return ids


def test_two_servers_leave_a_target_alone_that_one_found_failing_and_call_it_again_once_it_works(
    office: Office,
) -> None:
    with a_target() as target, office.server() as (_, first), office.server() as (_, second):
        target.status = 503
        ids = added(office, target, RULES.window + 1)
        last = ids.pop()
        for id_ in ids:
            assert office.process(first, id_).json()["ack"] is True
        looked_at = f"{second}/monitoring/circuit-breakers"
        until(lambda: requests.get(looked_at, timeout=15).json() != [])
        (shown,) = requests.get(looked_at, timeout=15).json()
        assert (shown["origin"], shown["state"]) == (target.url.removesuffix("/hook"), "OPEN")
        for address in (first, second):
            answer = office.process(address, last, attempt=office.show(last)["attempt"]).json()
            assert answer["ack"] is True and "breaker" in answer["message"]
        assert len(target.received) == len(ids)
        shown = office.show(last)
        assert (shown["status"], shown["attempt"], shown["attempts"]) == ("PENDING", 3, [])
        refused = 'fleet_jobs_claims_refused_total{why="breaker"}'
        until(lambda: refused in requests.get(f"{first}/metrics", timeout=15).text)
        target.status = 200
        until(
            lambda: office.process(second, last, attempt=office.show(last)["attempt"]).json()["message"] == "COMPLETED"
        )
        for id_ in added(office, target, RULES.successes_to_close - 1):
            assert office.process(second, id_).json() == {"ack": True, "message": "COMPLETED"}
        until(lambda: office.fleet.run("breakers", "--json").document == [])
        assert len(target.received) == len(ids) + RULES.successes_to_close


async def test_a_target_whose_breaker_is_open_takes_no_room_from_others_and_gets_its_groups_in_order_when_it_is_back(
    office: Office, redis_server: RedisServer
) -> None:
    """More of its jobs are due than the pool has room for."""
    queue = {"queueName": "dispatch", "queueUri": "fleet://dispatch"}
    (office.fleet.directory / "router.json").write_text(json.dumps({"queues": [queue], "processingPools": []}))
    feed = {"FLEET_FEED_ENABLED": "true", "FLEET_FEED_POLL_INTERVAL_S": "0.1"}

    def completed() -> int:
        return int(office.fleet.run("jobs", "stats", "--json").document["COMPLETED"])

    with (
        a_target() as target,
        a_target() as other,
        office.fleet.running("up", "--config", "router.json", "--port", "0", **feed) as up,
    ):
        # Spark is there before the breaker is; on a busy machine that takes long.
        added(office, other, 1)
        until(lambda: completed() == 1, why=up.text, within_s=SPARK_PATIENCE_S)
        async with connected(redis_server.url) as client:
            await SharedBreakers(client).open(target.url.removesuffix("/hook"), "somebody", for_ms=SHUT_MS)
        ordered = added(office, target, 6, messageGroup="g")
        added(office, target, CAPACITY + 50, messageGroup="h{}")
        until(lambda: up.text().count("epoch") > 1, why=up.text)
        added(office, other, 20, messageGroup="i{}")
        until(lambda: completed() >= 1 + 20, why=up.text, within_s=90)
        assert target.received == []
        until(lambda: completed() == 1 + 20 + 6 + CAPACITY + 50, why=up.text, within_s=90)
        assert up.stop() == 0
    of_group = [got.headers["fleet-job"] for got in target.received if got.headers["fleet-job"] in ordered]
    assert of_group == ordered
    assert len(target.received) == 6 + CAPACITY + 50
