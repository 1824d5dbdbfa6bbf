"""One driver at work, on a real store and a real queue."""

from __future__ import annotations

import dataclasses
import hmac
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import delete, func, select, update

from fleet.errors import Fenced, FleetError, JobStoreError
from fleet.jobs.records import MODES
from fleet.jobs.schema import claims, epochs
from spark.begun import begun
from spark.explain import explain
from spark.room import QueueRoom
from spark.sources import ledger
from spark.steps import dispatch
from tests.spark.driver import Ground
from tests.waiting import until


def test_what_is_due_is_published_once_in_order_and_marked(ground: Ground) -> None:
    added = ground.add(1200, groups=300, modes=MODES)
    with ground.leading() as feed:
        first = feed.once()
    assert (first.sent, first.queued, first.seen) == (900, 900, 0)  # of each BLOCK_ON_ERROR group one of its four
    messages = ground.drain()
    places = sorted(ground.places().items(), key=lambda item: item[1])
    block = {f"g{number}" for number in range(2, 300, 3)}
    ground.judge({body["id"] for body, _ in messages}, messages)
    assert {group for _, group in messages} == {"", *(f"g{n}" for n in range(300) if n % 3)}
    assert sum(group in block for _, group in messages) == len(block)
    assert ground.states() == {("QUEUED", 1): 900, ("PENDING", 1): 300}
    with ground.leading() as feed:
        assert feed.once().sent == 0
    assert len(places) == len(added)


def test_a_message_says_what_the_processing_endpoint_needs(ground: Ground) -> None:
    (job_id,) = ground.add(1, groups=1, pool="P")
    ground.feed = dataclasses.replace(ground.feed, processing_endpoint="http://here/api/dispatch/process")
    with ground.leading() as feed:
        feed.once()
    ((body, group),) = ground.drain()
    token = hmac.digest(b"k", job_id.encode(), "sha256").hex()
    assert group == "g0"
    assert body == {
        "id": job_id,
        "poolCode": "P",
        "authToken": token,
        "mediationTarget": "http://here/api/dispatch/process?attempt=1",
        "messageGroupId": "g0",
        "dispatchMode": "BLOCK_ON_ERROR",  # of the call to our own server, not of the job
    }


def test_an_epoch_is_no_larger_than_the_room_that_is_left(ground: Ground) -> None:
    ground.add(50, groups=50)
    with ground.leading(max_depth=60, batch_size=20) as feed:
        done = feed.once()
        assert (done.epochs, done.sent, done.held_back) == (2, 30, "20 wait for room in the queue")
    assert len(ground.drain()) == 30
    with ground.leading() as feed:
        assert feed.once().sent == 20


def test_a_pool_that_fills_the_queue_leaves_room_for_another(ground: Ground) -> None:
    """It has more jobs than the queue takes, older ones, and nobody takes any of them."""
    slow = ground.add(100, groups=10, group="slow", pool="SLOW")
    with ground.leading(max_depth=80, window=100) as feed:
        first = feed.once()
        assert (first.sent, first.held_back) == (40, "60 wait for room in the queue")
        fast = ground.add(12, groups=6, group="fast", pool="FAST")
        second = feed.once()
        assert (second.sent, second.held_back) == (52, "60 wait for room in the queue")
        # One that its group holds waits for no room, and a pool whose room is not used up holds no backfill.
        ground.add(2, groups=1, group="b", pool="FAST", modes=("BLOCK_ON_ERROR",))
        assert feed.once().sent == 53
    messages = ground.drain()
    assert {body["id"] for body, _ in messages} >= {*slow[:40], *fast}


def test_a_deep_group_that_an_error_holds_waits_for_no_room(ground: Ground) -> None:
    """More of it is due than its pool may have out, but none of it would go if it might."""
    ids = ground.add(100, groups=1, modes=("BLOCK_ON_ERROR",))
    ground.set_all(ids[:1], status="ERROR")
    with ground.leading(max_depth=80) as feed:
        for _ in range(2):
            done = feed.once(wait_for_room=True)
            assert (done.sent, done.held_back) == (0, "")


def test_what_waits_for_room_is_told_though_all_else_waits_for_its_group(ground: Ground) -> None:
    """A backfill goes on for as long as something does."""
    ground.add(100, groups=0, pool="SLOW")
    ground.add(2, groups=1, pool="FAST", modes=("BLOCK_ON_ERROR",))
    with ground.leading(max_depth=80) as feed:
        for sent in (40, 0):  # and though nothing has changed
            told = feed.totals.sent
            done = feed.once()
            assert (done.sent - told, done.held_back) == (sent, "61 wait for room in the queue")
    ground.drain()


def test_of_a_group_in_two_pools_none_goes_before_one_that_its_pool_has_no_room_for(ground: Ground) -> None:
    ground.add(40, groups=0, pool="SLOW")
    with ground.leading(max_depth=80) as feed:
        assert feed.once().sent == 40
        ids = [ground.add(1, groups=1, pool=pool)[0] for pool in ("FAST", "SLOW", "FAST")]
        other = ground.add(1, groups=1, group="h", pool="FAST")
        assert feed.once().sent == 42
    assert {body["id"] for body, _ in ground.drain()} >= {ids[0], *other}
    assert {ground.store.job(id_).status for id_ in ids[1:]} == {"PENDING"}  # type: ignore[union-attr]


def test_a_second_driver_publishes_nothing(ground: Ground) -> None:
    ground.add(10, groups=10)
    with ground.leading() as first, ground.driver(ttl_ms=200) as second:
        assert not second.setup.lead.try_to_lead()
        with pytest.raises(FleetError, match="feeds the queue"):
            second.setup.lead.lead()
        with pytest.raises(Fenced):
            second.step()
        assert first.once().sent == 10


def test_a_driver_that_was_replaced_is_refused_by_store_and_queue(ground: Ground) -> None:
    """It froze an epoch, fell asleep, and wakes up when its successor has published that epoch."""
    ground.add(10, groups=10)
    with ground.leading() as old:
        epoch = dispatch.freeze(old.setup, QueueRoom(100))
        assert epoch is not None
        ground.redis.client().hset("{fleet}:feed", "deadline", "0")
        with ground.leading() as new:
            assert new.totals.sent == 10
        with pytest.raises(Fenced):
            dispatch.publish(dataclasses.replace(old.setup, lead=_Sleepwalker(old.setup.lead.fence)), epoch)  # type: ignore[arg-type]
        with pytest.raises(Fenced):
            old.setup.ledger.mark(epoch.number, jobs=epoch.jobs, fence=old.setup.lead.fence, now_ms=0)
    assert len(ground.drain()) == 10


def test_what_was_refused_stays_refused_when_the_driver_dies_before_the_mark(ground: Ground) -> None:
    (bad,) = ground.add(1, groups=1, pool="P" * 200)
    with ground.leading() as old:
        epoch = dispatch.freeze(old.setup, QueueRoom(10))
        assert epoch is not None
        dispatch.publish(old.setup, epoch)
        ground.redis.client().hset("{fleet}:feed", "deadline", "0")
        with ground.leading():
            assert ground.store.job(bad).status == "ERROR"  # type: ignore[union-attr]
    assert ground.drain() == []


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_large_epoch_is_marked_by_two_and_one_of_them_that_fails_leaves_the_rest_to_the_next_driver(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_MANY", 2)
    ground.add(45, groups=9)
    with ground.leading() as feed:
        assert feed.once().queued == 45
    ground.add(45, groups=9)

    def fails(work: Callable[[], Any], *, name: str) -> Any:
        def fail() -> None:
            raise JobStoreError("deadlock detected")

        return begun(fail, name=name)

    with ground.leading() as feed:
        monkeypatch.setattr(ledger, "begun", fails)
        with pytest.raises(JobStoreError):
            feed.step()
        half = ground.states()[("PENDING", 1)]
        assert 0 < half < 45
        monkeypatch.setattr(ledger, "begun", begun)
        feed.begin()
        assert feed.totals.queued == half
    assert ground.states() == {("QUEUED", 1): 90}
    assert len(ground.drain()) == 90


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_was_claimed_long_ago_is_forgotten(ground: Ground) -> None:
    def claimed() -> int:
        with ground.store.engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(claims)).scalar_one()

    with ground.leading() as feed:
        for _ in range(2):
            ground.add(5, groups=5)
            feed.once()
        assert claimed() == 10
        with ground.store.engine.connect() as connection, connection.begin():
            connection.execute(update(epochs).where(epochs.c.epoch == 2).values(marked_ms=1))
        feed.once()
    assert claimed() == 5


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_claims_that_somebody_has_deleted_keep_no_driver_from_going_on(ground: Ground) -> None:
    ground.add(5, groups=5)
    with ground.leading() as feed:
        assert dispatch.freeze(feed.setup, QueueRoom(10)) is not None
    with ground.store.engine.connect() as connection, connection.begin():
        connection.execute(delete(claims))
    with ground.leading() as feed:
        assert feed.once().sent == 5


class _Sleepwalker:
    """Still believes that it leads."""

    def __init__(self, fence: int) -> None:
        self.fence = fence

    def attend(self, work: Callable[[], Any], **_: object) -> Any:
        return work()

    def still_leads(self, _fence: int) -> bool:
        return True


def test_a_job_that_no_router_would_take_ends_in_error_and_stops_no_other(ground: Ground) -> None:
    ground.add(3, groups=3)
    (bad,) = ground.add(1, groups=1, pool="x" * 200)
    with ground.leading() as feed:
        done = feed.once()
    assert (done.sent, done.refused) == (3, 1)
    job = ground.store.job(bad)
    assert job is not None
    assert (job.status, job.last_error) == ("ERROR", "poolCode has 200 characters, the limit is 128")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_its_group_holds_is_planned_again_when_something_has_changed(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = ground.add(2, groups=1, modes=("BLOCK_ON_ERROR",))
    planned: list[object] = []
    with ground.leading() as feed:
        assert feed.once().sent == 1
        freeze = dispatch.freeze

        def seen(*said: Any, **more: Any) -> Any:
            planned.append(freeze(*said, **more))
            return planned[-1]

        monkeypatch.setattr(dispatch, "freeze", seen)
        assert (feed.step(), planned) == (False, [])
        ground.set_all([first], status="COMPLETED")
        assert (feed.step(), len(planned)) == (True, 1)
        assert (feed.step(), feed.totals.sent) == (False, 2)
        ground.add(1, groups=1, modes=("BLOCK_ON_ERROR",))
        assert (feed.step(), len(planned), planned[-1]) == (False, 2, None)
        # What changes no number is seen a little later.
        monkeypatch.setattr("spark.feed._HELD_S", 0.0)
        assert (feed.step(), len(planned)) == (False, 3)


def test_a_job_that_has_expired_is_not_published(ground: Ground) -> None:
    ground.add(1, groups=1, expires_ms=5)
    with ground.leading() as feed:
        done = feed.once()
    assert (done.sent, done.expired) == (0, 1)
    assert ground.states() == {("EXPIRED", 1): 1}


def test_explain_names_the_job_that_stands_before(ground: Ground) -> None:
    first, second = ground.add(2, groups=1, modes=("BLOCK_ON_ERROR",))
    ground.set_all([first], status="ERROR")
    said = explain(ground.store.engine, second, now_ms=2**50, window=10)
    assert said is not None
    assert said.endswith(f"does not go: {first} stands before it and is ERROR")
    assert explain(ground.store.engine, "none", now_ms=0, window=1) is None


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_queue_that_is_away_ends_no_driver_and_leaves_jobs_as_they_are(ground: Ground) -> None:
    ground.add(1, groups=1)
    stopping = threading.Event()
    with ground.driver(queue_url="stomp://127.0.0.1:1/none") as driver:
        running = threading.Thread(target=driver.run, args=(stopping,))
        running.start()
        until(lambda: any("trying again in 5 s" in line for line in ground.said), why=lambda: str(ground.said))
        assert running.is_alive()
        stopping.set()
        running.join()
    assert ground.states() == {("PENDING", 1): 1}
