"""`fleet feed backfill` and `fleet feed recover` as their user runs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select, update

from fleet.jobs.records import NewEvent, Subscription
from fleet.jobs.schema import epochs, events
from tests.acceptance.fleet_command import Fleet, Result
from tests.spark.driver import PATIENCE_S, Ground
from tests.spark.test_bad_input import fleet_of
from tests.waiting import until

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

ORDERED_AND_NOT = ("NEXT_ON_ERROR", "IMMEDIATE")
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


@pytest.fixture
def fleet(ground: Ground) -> Fleet:
    fleet = fleet_of(ground)
    quick = {
        "FLEET_FEED_MASTER": "local[1]",
        "FLEET_FEED_SHARDS": "2",
        "FLEET_FEED_POLL_INTERVAL_S": "0.1",
    }
    return replace(fleet, environment={**fleet.environment, **quick}, patience_s=PATIENCE_S)


def test_a_backlog_larger_than_the_queue_waits_for_room_and_goes_whole_and_in_order(
    ground: Ground, fleet: Fleet
) -> None:
    # Of two pools: each has a third of the queue at most.
    added = [id_ for pool in "AB" for id_ in ground.add(60, groups=12, modes=ORDERED_AND_NOT, group=pool, pool=pool)]
    messages: list[tuple[dict[str, Any], str]] = []
    with beside(lambda: fleet.run("feed", "backfill", FLEET_FEED_MAX_DEPTH="50")) as backfill:
        for shown, gone in ((32, 32), (32, 64), (32, 96), (24, 120)):
            until_it_waits(gone, ground, backfill)
            some = ground.drain()
            assert len(some) == shown, backfill
            messages += some
        done = backfill.result()
    assert (done.code, done.out) == (0, "0 events → 0 jobs, 120 published in 4 epochs, 120 queued\n"), done.err
    assert sizes_of_epochs(ground) == [32, 32, 32, 24]
    ground.judge(set(added), messages)


def test_a_subscription_gets_the_past_of_so_many_days_in_epochs_of_the_size_asked_for(
    ground: Ground, fleet: Fleet
) -> None:
    two_days_ago_ms = now_ms() - 2 * DAY_MS
    add_past_events(ground, "old", 10, created_ms=two_days_ago_ms - MINUTE_MS)
    young = add_past_events(ground, "young", 20, created_ms=two_days_ago_ms + 5 * MINUTE_MS)
    # Only the one that asks gets it.
    for name in ("early", "late"):
        ground.store.subscribe(Subscription(name=name, pattern="*", target_url="http://127.0.0.1:1/"))
    asked = ("--subscription", "late", "--days", "2", "--batch-size", "8", "--json")
    done = fleet.run("feed", "backfill", *asked)
    assert (done.code, done.out.count("\n")) == (0, 1), done.err
    assert done.document == {
        "events": 0,
        "jobs": 20,
        "epochs": 3,
        "published": 20,
        "inQueueAlready": 0,
        "queued": 20,
        "refused": 0,
        "expired": 0,
        "recovered": 0,
        "heldBack": None,
    }
    assert sizes_of_epochs(ground) == [8, 8, 4]
    jobs = ground.store.jobs(limit=0)
    assert sorted((job.event_id, job.subscription) for job in jobs) == [(event, "late") for event in young]
    ground.judge({job.id for job in jobs}, ground.drain())


def test_wrong_calls_of_backfill_are_told_in_one_line_and_nothing_goes(ground: Ground, fleet: Fleet) -> None:
    ground.add(1, groups=1)
    for days in ("inf", "nan", "1e12"):
        wrong = fleet.run("feed", "backfill", "--subscription", "late", "--days", days)
        assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    wrong = fleet.run("feed", "backfill", "--days", "2")
    said = "fleet feed backfill: --days goes with --subscription. (see fleet feed backfill --help)\n"
    assert (wrong.code, wrong.out, wrong.err) == (2, "", said)
    unknown = fleet.run("feed", "backfill", "--subscription", "nobody", "--json")
    said = "fleet: there is no subscription nobody, or it is switched off\n"
    assert (unknown.code, unknown.out, unknown.err) == (1, "", said)
    assert (ground.states(), ground.drain()) == ({("PENDING", 1): 1}, [])


def test_recover_lets_a_lost_job_go_again_and_none_whose_message_waits_or_that_is_younger_than_the_threshold(
    ground: Ground, fleet: Fleet
) -> None:
    lost, young = ground.add(2, groups=2)
    with ground.leading() as feed:
        feed.once()
    # Both have been QUEUED for longer than no time at all, and their messages wait.
    done = fleet.run("feed", "recover", FLEET_FEED_STALE_QUEUED_THRESHOLD_MINUTES="0")
    assert (done.code, done.out) == (0, "0 lost, 0 go again\n"), done.err
    assert ground.states() == {("QUEUED", 1): 2}
    assert len(ground.drain()) == 2
    ground.set_all([lost], queued_ms=now_ms() - 16 * MINUTE_MS)
    ground.set_all([young], queued_ms=now_ms() - 10 * MINUTE_MS)
    done = fleet.run("feed", "recover", FLEET_FEED_STALE_QUEUED_THRESHOLD_MINUTES="15")
    assert (done.code, done.out) == (0, "1 lost, 1 go again\n"), done.err
    found = {job.id: (job.status, job.attempt) for job in ground.store.jobs()}
    assert found == {lost: ("PENDING", 2), young: ("QUEUED", 1)}


@contextmanager
def beside(command: Callable[[], Result]) -> Iterator[Future[Result]]:
    """A command that runs while the test does something else."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(command)


def add_past_events(ground: Ground, name: str, count: int, *, created_ms: int) -> list[str]:
    """Fanned out long ago, as the feed leaves what nobody had asked for."""
    ids = [f"{name}-{number:02}" for number in range(count)]
    ground.store.add_events(
        [NewEvent(id=id_, type="a", payload="{}", msg_group=f"g{place % 4}") for place, id_ in enumerate(ids)]
    )
    with ground.store.engine.connect() as connection, connection.begin():
        past = update(events).where(events.c.id.in_(ids))
        connection.execute(past.values(created_ms=created_ms, fanned_out=1))
    return ids


def until_it_waits(gone: int, ground: Ground, command: Future[Result]) -> None:
    """Until so many are out and it has looked at the queue since and seen it full; or it has ended."""
    until(lambda: ground.states()[("QUEUED", 1)] == gone or command.done(), within_s=PATIENCE_S)
    looks = looks_at_the_queue(ground)
    until(lambda: looks_at_the_queue(ground) >= looks + 2 or command.done(), within_s=PATIENCE_S)


def looks_at_the_queue(ground: Ground) -> int:
    """How often somebody has asked for its depth, of all scripts the only one that counts so."""
    with ground.redis.client() as client:
        return int(client.info("commandstats").get("cmdstat_zcount", {"calls": 0})["calls"])


def sizes_of_epochs(ground: Ground) -> Sequence[int]:
    """Without those that drivers begin with."""
    question = select(epochs.c.jobs).where(epochs.c.jobs > 0).order_by(epochs.c.epoch)
    with ground.store.engine.connect() as connection:
        return connection.execute(question).scalars().all()


def now_ms() -> int:
    return time.time_ns() // 1_000_000
