"""From the job store to the endpoint and back, as processes that are killed while they work."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.servers.local import RedisServer
from tests.spark.driver import Ground
from tests.spark.story import killed_and_judged
from tests.spark.works import tell, the_works, verdict


@pytest.mark.parametrize(
    ("database_url", "jobs", "groups"),
    [
        pytest.param("sqlite", 1500, 300, id="short"),
        pytest.param("postgresql", 20_000, 500, id="whole", marks=pytest.mark.long),
    ],
    indirect=["database_url"],
)
def test_drivers_and_a_server_are_killed_and_no_job_is_lost_doubled_or_out_of_order(
    tmp_path: Path, redis_server: RedisServer, database_url: str, jobs: int, groups: int
) -> None:
    with the_works(tmp_path, redis_server, database_url, {"FLEET_FEED_BATCH_SIZE": str(jobs // 4)}) as works:
        killed_and_judged(works, jobs, groups)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_ledger_that_is_deleted_and_a_redis_that_is_emptied_cost_no_job(
    tmp_path: Path, redis_server: RedisServer, database_url: str
) -> None:
    """The ledger is what a checkpoint would be. Deleted, it costs nothing: the queue knows what it has taken."""
    recovery = {"FLEET_FEED_STALE_QUEUED_THRESHOLD_MINUTES": "0", "FLEET_FEED_STALE_QUEUED_POLL_INTERVAL_S": "0.5"}
    with the_works(tmp_path, redis_server, database_url, recovery) as works:
        worker = works.start_router()
        works.start_server()
        works.add(300, groups=100)
        first = works.start_driver("feed-published:kill")
        works.says(first, "leading")
        second = works.start_driver()
        works.wait(lambda: first.popen.poll() is not None, "not killed")
        works.forget_ledger()
        works.wait(lambda: works.endpoint.seen != [], "no delivery", every_s=0.001)
        worker.popen.send_signal(signal.SIGSTOP)
        works.add(300, groups=100)
        works.wait(lambda: works.store.stats()["QUEUED"] >= 100, "few in the queue")
        assert works.published.twice() == []
        with redis_server.client() as client:
            client.flushall()
        in_doubt = works.in_progress()
        worker.popen.send_signal(signal.SIGCONT)
        tell(works, "emptied Redis")
        works.wait(lambda: "recovered" in second.text(), "nothing recovered")
        works.wait(works.settled, "not settled", every_s=0.3)
        found = verdict(works)
        tell(works, found.line())
        assert found.lost == []
        assert found.after_an_error == []
        good = Counter(one.job for one in works.endpoint.seen if one.good)
        assert {job for job, times in good.items() if times > 1} <= in_doubt


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_job_that_a_dead_server_had_claimed_is_not_overtaken_by_its_group(
    tmp_path: Path, redis_server: RedisServer, ground: Ground
) -> None:
    """It died between the claim and the request: the first attempt of the job is still to come."""
    with the_works(tmp_path, redis_server, ground.database) as works:
        endpoint = f"http://127.0.0.1:{works.port}/api/dispatch/process"
        works.paths = dict.fromkeys(ground.add(4, groups=1, target_url=f"{works.endpoint.url}/good"), "good")
        with ground.leading(processing_endpoint=endpoint) as feed:
            assert feed.once().sent == 4
        first, *_ = works.paths
        ground.set_all([first], status="IN_PROGRESS", claimed_until_ms=time.time_ns() // 1_000_000 + 4000)
        works.start_server()
        works.start_router()
        works.wait(works.settled, "not settled")
        assert [one.job for one in works.endpoint.seen] == list(works.paths)
