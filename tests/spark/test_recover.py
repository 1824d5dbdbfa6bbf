"""Jobs that were lost go again, with what stands behind them; a backlog is not a loss."""

from __future__ import annotations

import asyncio

import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from fleet.state.connect import connected
from fleet.state.keys import FleetKeys, QueueKeys
from fleet.state.own_queue import Conclusion, OwnQueue
from spark import schemas
from spark.steps.recover import Recovered
from spark.transforms.recover import suspects, to_reset
from tests.spark.driver import QUEUE, Ground


def test_lost_is_what_was_silent_for_long_and_waits_nowhere(session: SparkSession) -> None:
    rows = [
        ("silent", "g", "NEXT_ON_ERROR", "QUEUED", 99, 1, 1, 100, None),
        ("young", "g", "NEXT_ON_ERROR", "QUEUED", 99, 1, 1, 950, None),
        ("waits", "g", "NEXT_ON_ERROR", "QUEUED", 99, 1, 1, 500, None),
        ("held", "g", "NEXT_ON_ERROR", "IN_PROGRESS", 99, 1, 1, 100, 1001),
        ("abandoned", "g", "NEXT_ON_ERROR", "IN_PROGRESS", 99, 1, 1, 100, 1000),
        ("abandoned before its mark", "g", "NEXT_ON_ERROR", "IN_PROGRESS", 99, 1, 1, None, 499),
        ("abandoned, may wait", "g", "NEXT_ON_ERROR", "IN_PROGRESS", 99, 1, 1, None, 500),
    ]
    table = session.createDataFrame(rows, schemas.UNDER_WAY)
    found = suspects(table, now_ms=1000, threshold_ms=100, oldest_waiting_ms=500).select("id")
    expected = [("silent",), ("abandoned",), ("abandoned before its mark",)]
    assertDataFrameEqual(found, session.createDataFrame(expected, "id string"), ignoreNullable=True)


def test_of_its_group_what_was_published_behind_it_goes_back_too(session: SparkSession) -> None:
    rows = [
        ("1", "g", "NEXT_ON_ERROR", "QUEUED", 99, 1, 1, 1, None),
        ("2 lost", "g", "NEXT_ON_ERROR", "QUEUED", 99, 2, 4, 1, None),
        ("3", "g", "BLOCK_ON_ERROR", "QUEUED", 99, 3, 1, 1, None),
        ("4", "g", "NEXT_ON_ERROR", "IN_PROGRESS", 99, 4, 1, 1, 9),
        ("5", "g", "IMMEDIATE", "QUEUED", 99, 5, 1, 1, None),
        ("6 lost", "h", "IMMEDIATE", "QUEUED", 99, 1, 1, 1, None),
        ("7", "h", "NEXT_ON_ERROR", "QUEUED", 99, 2, 1, 1, None),
        ("8 lost", None, "NEXT_ON_ERROR", "QUEUED", 99, 1, 1, 1, None),
        ("9", None, "NEXT_ON_ERROR", "QUEUED", 99, 2, 1, 1, None),
    ]
    lost = session.createDataFrame([("2 lost",), ("6 lost",), ("8 lost",)], "id string")
    found = to_reset(session.createDataFrame(rows, schemas.UNDER_WAY), lost)
    expected = [("2 lost", 4, "QUEUED"), ("3", 1, "QUEUED"), ("6 lost", 1, "QUEUED"), ("8 lost", 1, "QUEUED")]
    assertDataFrameEqual(
        found, session.createDataFrame(expected, "id string, attempt int, status string"), ignoreNullable=True
    )


def test_a_backlog_is_not_a_loss_and_a_lost_message_is(ground: Ground) -> None:
    ground.add(40, groups=4)
    with ground.leading(stale_queued_threshold_minutes=0) as feed:
        feed.once()
        assert feed.recover() == Recovered(0, 0)
        ground.redis.client().flushall()
        feed.setup.lead.lead()
        assert feed.recover() == Recovered(40, 40)
        assert ground.states() == {("PENDING", 2): 40}
        assert feed.once().sent == 80
    messages = ground.drain()
    assert {body["mediationTarget"][-9:] for body, _ in messages} == {"attempt=2"}
    ground.judge(set(ground.places()), messages)


def test_a_lost_job_comes_back_in_its_place(ground: Ground) -> None:
    first, *rest = ground.add(5, groups=1)
    with ground.leading() as feed:
        feed.once()
        ground.set_all([first], queued_ms=1)
        asyncio.run(lose_the_oldest(ground))
        assert feed.recover() == Recovered(1, 5)
        feed.once()
    attempts = [(body["id"], body["mediationTarget"][-1]) for body, _ in ground.drain()]
    assert attempts == [(job, "1") for job in rest] + [(job, "2") for job in [first, *rest]]


def test_what_a_router_has_in_hand_is_not_lost(ground: Ground) -> None:
    first, second = ground.add(2, groups=2)
    with ground.leading() as feed:
        feed.once()
        ground.drain()
        ground.set_all(queued_ms=1)
        with ground.redis.client() as client:
            client.hset(FleetKeys.queues, "routed", "{}")
            client.hset(QueueKeys("routed").apps, first, "17")
        assert feed.recover() == Recovered(1, 1)
    found = {job.id: (job.status, job.attempt) for job in ground.store.jobs()}
    assert found == {first: ("QUEUED", 1), second: ("PENDING", 2)}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_messages_of_many_groups_that_wait_for_another_try_are_not_lost(ground: Ground) -> None:
    """The oldest of them is to be shown last: whoever looks at the next few only takes it for gone."""
    with ground.leading(stale_queued_threshold_minutes=0) as feed:
        for epoch in ("first", "second"):
            ground.add(100, groups=100, group=epoch)
            feed.once()
        asyncio.run(give_back_the_newest_first(ground))
        assert feed.recover() == Recovered(0, 0)
    assert ground.states() == {("QUEUED", 1): 200}


async def give_back_the_newest_first(ground: Ground) -> None:
    async with connected(ground.redis.url) as client:
        queue = OwnQueue(client, QUEUE)
        shown, _ = await queue.receive(1000, visibility_ms=60_000)
        assert len(shown) == 200
        for place, one in enumerate(reversed(shown)):
            again = Conclusion(one.number, one.count, one.group, "show", 30_000 + 10 * place)
            assert await queue.conclude([again]) == [True]


async def lose_the_oldest(ground: Ground) -> None:
    async with connected(ground.redis.url) as client:
        queue = OwnQueue(client, QUEUE)
        (oldest,), _ = await queue.receive(1, visibility_ms=1000)
        await queue.conclude([Conclusion(oldest.number, oldest.count, oldest.group)])
