"""A long queue is no loss; what is lost ahead of it comes back in its place, and late copies deliver nothing."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import requests

from spark.steps.recover import Recovered
from tests.acceptance.fleet_command import Fleet
from tests.acceptance.office import Office
from tests.acceptance.webhooks import Target, a_target
from tests.spark.driver import Ground, process
from tests.spark.test_recover import lose_the_oldest
from tests.waiting import until

GROUP_OF = 5
LOST = "lost0"


@pytest.mark.parametrize(
    ("database_url", "waiting"),
    [
        ("sqlite", 3000),
        pytest.param("sqlite", 100_000, marks=pytest.mark.long),
        pytest.param("postgresql", 100_000, marks=pytest.mark.long),
    ],
    indirect=["database_url"],
)
def test_of_a_long_queue_none_is_reset_and_a_lost_job_is_delivered_once_in_its_place(
    ground: Ground, tmp_path: Path, waiting: int
) -> None:
    ground.ttl_ms = 10_000  # adding so many keeps this process busy
    office = Office(
        Fleet(
            tmp_path,
            {
                "FLEET_REDIS_URL": ground.redis.url,
                "FLEET_DATABASE_URL": ground.database,
                "FLEET_DATABASE_APP_KEY": "k",
                "FLEET_DATA_DIR": str(tmp_path),
            },
        ),
        ground.database,
    )
    with a_target() as target, office.server() as (_, address):
        endpoint = f"{address}/api/dispatch/process"
        ground.feed = dataclasses.replace(ground.feed, processing_endpoint=endpoint)
        with ground.leading(stale_queued_threshold_minutes=0, batch_size=200_000) as feed:
            (lost,) = _add_to_group(ground, target, 1)
            assert feed.once().queued == 1
            asyncio.run(lose_the_oldest(ground))
            behind = _add_to_group(ground, target, 3)
            ground.add(waiting, groups=waiting // GROUP_OF)
            assert feed.once().queued == 1 + 3 + waiting
            # All of them are QUEUED for longer than the threshold, and one has no message any more.
            assert feed.recover() == Recovered(lost=1, reset=1 + 3)
            assert ground.states() == {("PENDING", 2): 4, ("QUEUED", 1): waiting}
            assert feed.once().queued == 1 + 3 + waiting + 4
            assert feed.recover() == Recovered(0, 0)
        of_the_group = [body for body, group in ground.drain() if group == LOST]
        # The late copies of those behind it come first, as they stand in the queue.
        assert [_attempt(body) for body in of_the_group] == [1, 1, 1, 2, 2, 2, 2]
        answers = [process(body) for body in of_the_group]
        until(
            lambda: 'fleet_jobs_attempts_total{outcome="SUCCESS"} 4' in _metrics(address), why=lambda: _metrics(address)
        )
        metrics = _metrics(address)
        late = process({**of_the_group[3], "mediationTarget": f"{endpoint}?attempt=1"})
    assert {
        'fleet_jobs_claims_refused_total{why="over"} 3',
        "fleet_feed_epochs_total 3",
        f"fleet_feed_sent_total {waiting + 8}",
        "fleet_feed_recovered_total 4",
        "fleet_feed_leader 0",
    } <= set(metrics.splitlines())
    refused = {"ack": True, "message": "attempt 2 is the one that counts now"}
    assert answers == [refused] * 3 + [{"ack": True, "message": "COMPLETED"}] * 4
    assert late["ack"] is True
    assert [(got.headers["fleet-job"], got.headers["fleet-attempt"]) for got in target.received] == [
        (job, "2") for job in (lost, *behind)
    ]
    assert ground.states() == Counter({("COMPLETED", 2): 4, ("QUEUED", 1): waiting})


def _add_to_group(ground: Ground, target: Target, count: int) -> list[str]:
    return ground.add(count, groups=1, group="lost", target_url=target.url)


def _attempt(body: dict[str, Any]) -> int:
    return int(body["mediationTarget"].rpartition("=")[2])


def _metrics(address: str) -> str:
    return requests.get(f"{address}/metrics", timeout=15).text
