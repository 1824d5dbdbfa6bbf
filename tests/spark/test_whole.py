"""From the job store to the endpoint and back, as processes that are killed while they work."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.fleet_command import Process
from tests.servers import RedisServer
from tests.spark.driver import Ground
from tests.spark.works import STAYS_MS, Verdict, Works, the_works, verdict

PLACES = ("feed-marked:kill:1", "feed-frozen:kill:1", "feed-publishing:kill-driver:1", "feed-published:kill:1")
"""PIPELINE's four: at the end of the epoch, after the claim, in the middle of publishing, before the mark."""


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
        worker = works.start_router()
        portion = jobs // 2 // (len(PLACES) + 1)
        works.add(jobs - portion * (len(PLACES) + 1), groups=groups)
        server, leader = works.start_server(), works.start_driver(PLACES[0])
        works.says(leader, "leading")
        in_doubt = _kill_in_mid_delivery(works, server)
        for number, place in enumerate(PLACES):
            if place.startswith("feed-publishing"):
                # Asleep until all of the epoch is in the queue: what it had delivered would not be published again.
                worker.popen.send_signal(signal.SIGSTOP)
            successor = works.start_driver((*PLACES, "")[number + 1])
            works.wait(lambda leader=leader: leader.popen.poll() is not None, f"no kill at {place}")  # type: ignore[misc]
            assert leader.popen.returncode == -signal.SIGKILL, leader.text()
            _tell(works, f"killed at {place}")
            if place.startswith("feed-published"):
                worker.popen.send_signal(signal.SIGCONT)
            works.add(portion, groups=groups)
            works.says(successor, "leading")
            leader = successor
        last = works.start_driver(ttl_ms=STAYS_MS)
        works.says(last, "standing by")
        _kill_in_publish(works, leader)
        works.add(portion, groups=groups)
        works.says(last, "leading")
        idle = works.start_driver()
        works.wait(works.settled, "not settled", limit_s=120 + jobs / 30, every_s=0.3)
        _judge(works, jobs, in_doubt)
        # What ended in error goes once more, and what waited behind it goes on.
        works.endpoint.healed = True
        assert works.store.retry_all() > 0
        works.wait(lambda: works.store.stats()["COMPLETED"] == jobs, "not delivered", limit_s=120 + jobs / 30)
        assert _judge(works, jobs, in_doubt).delivered == jobs
        assert "standing by" in idle.text() and "leading" not in idle.text()
        assert idle.stop() == 0
        assert "0 published in 0 epochs" in idle.text()
        assert last.stop() == 0


def _judge(works: Works, jobs: int, in_doubt: set[str]) -> Verdict:
    found = verdict(works)
    _tell(works, found.line())
    assert len(works.paths) == jobs == found.jobs
    assert found.lost == []
    assert found.published_twice == []
    assert works.claimed() == found.published
    assert found.out_of_order == []
    assert found.after_an_error == []
    assert {one.rpartition(":")[0] for one in found.delivered_twice} <= in_doubt
    return found


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
        _tell(works, "emptied Redis")
        works.wait(lambda: "recovered" in second.text(), "nothing recovered")
        works.wait(works.settled, "not settled", every_s=0.3)
        found = verdict(works)
        _tell(works, found.line())
        assert found.lost == []
        assert found.after_an_error == []
        good = Counter(one.job for one in works.endpoint.seen if one.good)
        assert {job for job, times in good.items() if times > 1} <= in_doubt


def _kill_in_mid_delivery(works: Works, server: Process) -> set[str]:
    """Its jobs are in doubt: what was answered, if anything, it has told nobody."""
    works.wait(lambda: works.endpoint.under_way >= 8, "the endpoint has little to do", every_s=0.001)
    server.popen.kill()
    server.popen.wait()
    in_doubt = works.in_progress()
    assert in_doubt
    works.start_server()
    _tell(works, f"server killed with {len(in_doubt)} jobs under way")
    return in_doubt


def _kill_in_publish(works: Works, leader: Process) -> None:
    """When the queue has a random share of an epoch, between freeze and `published` as the ledger has it."""
    number = works.newest_epoch().number
    for _ in range(50):
        works.wait(lambda number=number: works.newest_epoch().number > number, "no further epoch", every_s=0.002)  # type: ignore[misc]
        epoch, before = works.newest_epoch(), works.published.count
        number, share = epoch.number, works.dice.randrange(max(1, epoch.jobs))
        works.wait(
            lambda number=number, enough=before + share: (  # type: ignore[misc]
                works.published.count >= enough or not works.is_in_publish(number)
            ),
            "neither published nor not",
            every_s=0.001,
        )
        if works.is_in_publish(number):
            break
    leader.popen.kill()
    leader.popen.wait()
    assert works.is_in_publish(number)
    _tell(works, f"killed in publish, {works.published.count - before} of {epoch.jobs} messages in")


def _tell(works: Works, what: str) -> None:
    print(f"{time.monotonic() - works.began_s:5.1f} s: {what}; {len(works.endpoint.seen)} deliveries so far")


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
