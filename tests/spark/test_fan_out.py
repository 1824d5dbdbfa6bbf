"""Events × subscriptions → jobs."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from fleet.jobs.records import NewEvent, Subscription
from spark import schemas
from spark.sources import copy
from spark.steps import fan_out
from spark.steps.fan_out import release, take
from spark.transforms.fan_out import jobs_of
from tests.spark.driver import Ground

SEGMENTS = st.lists(st.sampled_from(["a", "b", "*", "", "é"]), min_size=1, max_size=4)


def matches(pattern: str, said: str) -> bool:
    wanted, given_ = pattern.split(":"), said.split(":")
    return len(wanted) == len(given_) and all(w in ("*", g) for w, g in zip(wanted, given_, strict=True))


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    types=st.lists(SEGMENTS, max_size=6), patterns=st.lists(SEGMENTS, max_size=6), group=st.sampled_from([None, "G"])
)
def test_patterns_match_in_spark_as_in_plain_python(
    session: SparkSession, types: list[list[str]], patterns: list[list[str]], group: str | None
) -> None:
    events = [(f"e{n}", ":".join(one), group, "{}", n) for n, one in enumerate(types)]
    subscriptions = [(f"s{n}", ":".join(one), "http://t", "IMMEDIATE", "P") for n, one in enumerate(patterns)]
    made = jobs_of(
        session.createDataFrame(events, schemas.EVENTS), session.createDataFrame(subscriptions, schemas.SUBSCRIPTIONS)
    )
    expected = [
        (event[0], subscription[0], group and f"{subscription[0]}:{group}", event[4])
        for event in events
        for subscription in subscriptions
        if matches(subscription[1], event[1])
    ]
    assertDataFrameEqual(
        made.select("event_id", "subscription", "msg_group", "created_ms"),
        session.createDataFrame(expected, "event_id string, subscription string, msg_group string, created_ms long"),
        ignoreNullable=True,
    )


def test_events_become_jobs_once_in_their_order_and_are_let_go(ground: Ground) -> None:
    ground.store.subscribe(Subscription(name="all", pattern="order:*", target_url="http://t", mode="BLOCK_ON_ERROR"))
    ground.store.subscribe(Subscription(name="none", pattern="order", target_url="http://t"))
    ids = ground.store.add_events([NewEvent(type="order:made", payload=f"{n}", msg_group="c1") for n in range(20)]).ids
    ground.store.add_events([NewEvent(type="nobody:asked", payload="")])
    with ground.leading() as feed:
        assert fan_out.fan_out(feed.setup) == (21, 20)
        assert fan_out.fan_out(feed.setup) == (0, 0)
    jobs = sorted(ground.store.jobs(limit=0), key=lambda job: (job.sequence, job.created_ms, job.id))
    assert [(job.event_id, job.msg_group, job.mode, job.code) for job in jobs] == [
        (event, "all:c1", "BLOCK_ON_ERROR", "order:made") for event in ids
    ]


def test_events_with_ids_of_ones_own_keep_the_order_of_their_file(ground: Ground) -> None:
    ground.store.subscribe(Subscription(name="all", pattern="*", target_url="http://t", mode="BLOCK_ON_ERROR"))
    ids = ["order-17", "order-17-paid", "x" * 101, "order-17!", "y" * 120, "order-17-shipped"]
    ground.store.add_events([NewEvent(id=id_, type="a", payload="", msg_group="c1") for id_ in ids])
    with ground.leading() as feed:
        assert fan_out.fan_out(feed.setup) == (6, 6)
    jobs = sorted(ground.store.jobs(limit=0), key=lambda job: (job.sequence, job.created_ms, job.id))
    assert [job.event_id for job in jobs] == ids


def test_a_driver_that_dies_in_the_middle_leaves_its_events_to_the_next(ground: Ground) -> None:
    ground.store.subscribe(Subscription(name="s", pattern="a", target_url="http://t"))
    ground.store.add_events([NewEvent(type="a", payload="") for _ in range(5)])
    assert take(ground.store.engine, -7, 3) == 3
    with ground.leading() as feed:
        assert fan_out.fan_out(feed.setup) == (5, 5)
        # What wakes up late lets nothing go that its successor has not made jobs of.
        ground.store.add_events([NewEvent(type="a", payload="")])
        take(ground.store.engine, -8, 10)
        release(ground.store.engine, -7)
        assert fan_out.fan_out(feed.setup) == (1, 1)


def test_a_subscription_that_came_later_gets_the_past_when_asked(ground: Ground) -> None:
    ground.store.subscribe(Subscription(name="early", pattern="a", target_url="http://t"))
    ground.store.add_events([NewEvent(type="a", payload="") for _ in range(5)])
    with ground.leading() as feed:
        assert dataclasses.asdict(feed.once())["jobs"] == 5
        for name in ("late", "other"):
            ground.store.subscribe(Subscription(name=name, pattern="*", target_url="http://t"))
        feed.look_back("late", since_ms=0)
        feed.look_back("late", since_ms=0)
    assert sorted(job.subscription or "" for job in ground.store.jobs(limit=0)) == ["early"] * 5 + ["late"] * 5


def test_the_past_is_made_jobs_of_from_its_oldest_on_so_that_one_who_dies_leaves_no_gap(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy, "BATCH", 4)
    events = ground.store.add_events([NewEvent(type="a", payload="", msg_group="g") for _ in range(10)]).ids
    shown: list[str] = []

    class Died(Exception):
        pass

    def die_at_the_second(words: str) -> None:
        shown.append(words)
        if len(shown) == 2:
            raise Died

    with ground.leading() as feed:
        feed.once()
        ground.store.subscribe(Subscription(name="late", pattern="*", target_url="http://t"))
        with pytest.raises(Died):
            fan_out.look_back(feed.setup, "late", since_ms=0, show=die_at_the_second)
        assert {job.event_id for job in ground.store.jobs(limit=0)} == set(events[:8])
        assert fan_out.look_back(feed.setup, "late", since_ms=0, show=shown.append) == 2
    assert shown[1] == "8 past events looked at, 8 new jobs"
    assert shown[-1] == "10 past events looked at, 2 new jobs"


@pytest.mark.parametrize("length", [26, 100, 101, 5000])
def test_a_jobs_id_fits_a_message(session: SparkSession, length: int) -> None:
    events = session.createDataFrame([("e" * length, "a", None, "", 1)], schemas.EVENTS)
    asking = session.createDataFrame([("s", "a", "http://t", "IMMEDIATE", "P")], schemas.SUBSCRIPTIONS)
    (row,) = jobs_of(events, asking).collect()
    assert len(row.id) <= 128
