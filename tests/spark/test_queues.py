"""The queue is any source's publisher: a real driver feeds each kind, and a consumer takes all of it out again."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from fleet.jobs.records import MODES
from fleet.jobs.schema import claims
from fleet.sources.base import Receipt, Received, Surroundings
from fleet.sources.open import open_source
from spark.session import Spark
from spark.sources.ledger import Ledger
from tests.servers.brokers import BROKERS, UNORDERED
from tests.servers.local import RedisServer
from tests.spark.driver import Ground

GROUPS, EACH = 6, 10
CLAIMED = 4 * EACH + 2
"""Of the six groups two are IMMEDIATE, two NEXT_ON_ERROR with no more jobs than the window, and of two BLOCK_ON_ERROR
ones the first job goes."""
TELLS_WHAT_IT_HAD = "fleet"
FORGETFUL = frozenset({"sqs", "activemq", "door", "near"})
"""Kinds that know no dedup ids (docs/sources.md, "Sending"): what is published twice they have twice."""


# A driver asks how deep its queue is, which a topic cannot say: it is not fed.
@pytest.fixture(params=[kind for kind in BROKERS if kind != "subscription"])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def ground(
    kind: str, tmp_path: Path, redis_server: RedisServer, the_spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ground]:
    """One whose drivers feed a queue of that kind."""
    with BROKERS[kind](tmp_path) as broker:
        executors = the_spark.session.sparkContext.environment
        for name in filter(lambda name: name.startswith("AWS_"), os.environ):
            # Executors have what Java began with, and it may be older than these credentials.
            monkeypatch.setitem(executors, name, os.environ[name])
        uri = broker.near_uri or broker.uri or f"sqlite:///{tmp_path}/queue.db?queue=dispatch"
        made = Ground(tmp_path, broker.redis_server or redis_server, the_spark, f"sqlite:///{tmp_path}/jobs.db")
        made.feed = dataclasses.replace(made.feed, queue_url=uri)
        made.add(GROUPS * EACH, groups=GROUPS, modes=MODES)
        try:
            yield made
        finally:
            made.store.close()


def test_every_claim_is_one_message_and_those_of_a_group_are_in_order(ground: Ground, kind: str) -> None:
    with ground.leading() as feed:
        done = feed.once()
    assert (done.sent, done.seen, done.refused, done.queued) == (CLAIMED, 0, 0, CLAIMED)
    assert ground.states() == {("QUEUED", 1): CLAIMED, ("PENDING", 1): GROUPS * EACH - CLAIMED}
    taken = asyncio.run(taken_out(ground))
    claimed = claims_of(ground)
    assert Counter(one.claim for one in taken) == Counter(claimed)
    judge_order(ground, kind, taken)
    jobs = {job.id: job for job in ground.store.jobs(limit=0)}
    for one in taken:
        job = jobs[one.body["id"]]
        group = None if job.mode == "IMMEDIATE" else job.msg_group
        assert (one.group, one.body.get("messageGroupId")) == (group, group)
        assert one.body["mediationTarget"].endswith("/api/dispatch/process?attempt=1")


def test_an_epoch_that_is_published_again_is_there_once_where_the_queue_knows_dedup_ids_and_twice_elsewhere(
    ground: Ground, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver had published all of it and died before it could say so: the ledger has it frozen still."""
    with ground.leading() as dying, monkeypatch.context() as patch:
        patch.setattr(Ledger, "published", die)
        with pytest.raises(Died):
            dying.once()
    assert ground.states() == {("PENDING", 1): GROUPS * EACH}
    with ground.leading() as successor:
        told = successor.totals
        # Only our own queue says what it had already.
        again = (0, CLAIMED) if kind == TELLS_WHAT_IT_HAD else (CLAIMED, 0)
        assert (told.epochs, told.sent, told.seen, told.queued) == (1, *again, CLAIMED)
    taken = asyncio.run(taken_out(ground))
    copies = 2 if kind in FORGETFUL else 1
    assert Counter(one.claim for one in taken) == dict.fromkeys(claims_of(ground), copies)
    # Of two the first counts: the second finds a job that is over, and the endpoint acks it and delivers nothing.
    judge_order(ground, kind, list({one.claim: one for one in taken}.values()))
    assert ground.states() == {("QUEUED", 1): CLAIMED, ("PENDING", 1): GROUPS * EACH - CLAIMED}


class Died(Exception):
    pass


def die(*_: object, **__: object) -> None:
    raise Died


# The consumer --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Taken:
    body: dict[str, Any]
    group: str | None

    @property
    def claim(self) -> tuple[str, int]:
        return self.body["id"], int(self.body["mediationTarget"].rpartition("=")[2])


async def taken_out(ground: Ground) -> list[Taken]:
    """Every message, as a coordinator is given it; the queue is empty then."""
    source = open_source("q", ground.feed.queue_url, 30_000, around=Surroundings(redis_url=ground.redis.url))
    await source.open()
    taken: list[Received] = []
    try:
        async with asyncio.timeout(30):
            while (depth := await source.depth()).waiting + depth.invisible:
                some = await source.poll(100, 500)
                assert all(await source.ack([Receipt(one.broker_id, one.handle) for one in some]))
                taken += some
    finally:
        await source.close()
    return [Taken(json.loads(one.body), one.group) for one in taken]


def claims_of(ground: Ground) -> set[tuple[str, int]]:
    with ground.store.engine.connect() as connection:
        return {(row.job_id, row.attempt) for row in connection.execute(select(claims.c.job_id, claims.c.attempt))}


def judge_order(ground: Ground, kind: str, taken: list[Taken]) -> None:
    ordered = kind not in UNORDERED
    messages = [(one.body, (one.group or "") if ordered else "") for one in taken]
    ground.judge({one.body["id"] for one in taken}, messages)
