"""What people and programs get wrong, and what is large: each does what the table of `docs/pipeline.md` says."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError

from fleet.jobs.records import Job
from fleet.jobs.schema import dispatch_jobs, events
from spark.explain import explain
from spark.session import Spark
from tests.acceptance.fleet_command import Fleet, Result
from tests.acceptance.office import Office
from tests.acceptance.webhooks import Received, a_target
from tests.servers.local import RedisServer
from tests.spark.driver import Ground, process

MIB = 1_048_576
GOOD = {"targetUrl": "http://127.0.0.1:1/", "payload": 1}
EMPTY = {"msg_group": "", "mode": "BLOCK_ON_ERROR"}
ROW = {"target_url": "nowhere", "payload": "{}", "mode": "NEXT_ON_ERROR", "pool": "DEFAULT-POOL", "created_ms": 1}


def lines(*given: dict[str, Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in given)


def fleet_of(ground: Ground) -> Fleet:
    return Fleet(
        ground.directory,
        {
            "FLEET_REDIS_URL": ground.redis.url,
            "FLEET_DATABASE_URL": ground.database,
            "FLEET_DATABASE_APP_KEY": "k",
            "FLEET_DATA_DIR": str(ground.directory),
        },
    )


@dataclass
class Aftermath:
    """What was left when commands had added all of it, the feed had gone by, and the server had had every message."""

    added: Result
    added_events: Result
    jobs: dict[str, Job]
    received: dict[str, Received]
    groups_at_the_queue: dict[str, str]


@pytest.fixture(scope="module")
def aftermath(_one_redis: RedisServer, the_spark: Spark, tmp_path_factory: pytest.TempPathFactory) -> Aftermath:
    _one_redis.reset()
    folder = tmp_path_factory.mktemp("bad-input")
    ground = Ground(folder, _one_redis, the_spark, f"sqlite:///{folder}/jobs.db", ttl_ms=10_000)
    fleet = fleet_of(ground)
    with a_target() as target, Office(fleet, ground.database).server() as (_, address):
        good = {"targetUrl": target.url, "payload": 1}
        subscribe = ("events", "subscribe", "--pattern", "a:*", "--target", target.url, "--name", "s")
        assert fleet.run(*subscribe).code == 0
        added_events = fleet.run(
            "events", "add", "--file", "-",
            input_text=lines(
                {"id": "unwanted", "type": "nobody:asked", "payload": 1},
                {"id": "event-1-mib", "type": "a:b", "payload": "e" * (MIB - 2)},
                {"id": "event-more", "type": "a:b", "payload": "e" * (MIB - 1)},
            ),
        )  # fmt: skip
        added = fleet.run(
            "jobs", "add", "--file", "-",
            input_text=lines(
                good | {"id": "mode", "mode": "SOMETIMES"},
                good | {"id": "target", "targetUrl": "nowhere"},
                good | {"id": "more", "payload": "x" * (MIB - 1)},
                good | {"id": "1-mib", "payload": "x" * (MIB - 2)},
                good | {"id": "past", "messageGroup": "p", "scheduledFor": "1999-01-01T00:00:00Z"},
                good | {"id": "9999", "messageGroup": "far", "scheduledFor": "9999-12-31T23:59:59Z"},
                good | {"id": "behind-next", "messageGroup": "far"},
                good | {"id": "behind-block", "messageGroup": "far", "mode": "BLOCK_ON_ERROR"},
                good | {"id": "behind-immediate", "messageGroup": "far", "mode": "IMMEDIATE"},
                *(good | {"id": f"null-{n}", "messageGroup": None, "mode": "BLOCK_ON_ERROR"} for n in range(3)),
            ),
        )  # fmt: skip
        with ground.store.engine.connect() as connection, connection.begin():
            # Another program writes into these tables too.
            bad = [{**ROW, "id": f"no-url-{retries}", "max_retries": retries} for retries in (0, 1)]
            empty = [{**ROW, **EMPTY, "id": f"empty-{n}", "target_url": target.url} for n in range(2)]
            for rows in (bad, empty):
                connection.execute(insert(dispatch_jobs), rows)
            event = {"id": "event-empty", "type": "a:b", "payload": "{}", "msg_group": "", "created_ms": 1}
            connection.execute(insert(events), [event])
        ground.feed = replace(ground.feed, processing_endpoint=f"{address}/api/dispatch/process")
        with ground.leading() as feed:
            feed.once()
        messages = ground.drain()
        for body, _ in messages:
            assert process(body)["ack"] is True
    jobs = {job.event_id or job.id: job for job in ground.store.jobs(limit=0)}
    ground.store.close()
    received = {got.headers["fleet-job"]: got for got in target.received}
    return Aftermath(added, added_events, jobs, received, {body["id"]: group for body, group in messages})


def test_an_event_that_nobody_asked_for_makes_nothing(aftermath: Aftermath) -> None:
    assert "unwanted" not in aftermath.jobs


def test_an_unknown_mode_and_a_target_that_is_no_url_are_refused_by_line_and_stop_no_other(
    aftermath: Aftermath,
) -> None:
    assert (aftermath.added.code, aftermath.added.out) == (1, "9 added, 3 refused\n")
    mode, target, size = aftermath.added.err.splitlines()
    assert 'line 1: mode: "SOMETIMES" is not one of' in mode
    assert 'line 2: targetUrl: "nowhere" is not an http' in target
    assert "line 3: payload" in size and "1048576" in size.replace(",", "")
    assert not {"mode", "target", "more"} & set(aftermath.jobs)


def test_a_target_that_is_no_url_and_came_another_way_ends_in_error_and_says_so(aftermath: Aftermath) -> None:
    job, again = aftermath.jobs["no-url-0"], aftermath.jobs["no-url-1"]
    assert (job.status, job.attempt) == ("ERROR", 1)
    assert (again.status, again.attempt) == ("PENDING", 2)
    assert job.last_error and again.last_error


def test_a_payload_of_1_mib_arrives_whole_and_one_byte_more_is_refused(aftermath: Aftermath) -> None:
    assert aftermath.received["1-mib"].body == json.dumps("x" * (MIB - 2)).encode()
    of_event = aftermath.jobs["event-1-mib"]
    assert aftermath.received[of_event.id].body == json.dumps("e" * (MIB - 2)).encode()
    assert (aftermath.added_events.code, aftermath.added_events.out) == (1, "2 added, 1 refused\n")
    assert "line 3: payload" in aftermath.added_events.err


def test_a_time_gone_by_is_now_and_the_year_9999_holds_the_ordered_jobs_behind_it(aftermath: Aftermath) -> None:
    status = {id_: job.status for id_, job in aftermath.jobs.items()}
    assert status["past"] == status["behind-immediate"] == "COMPLETED"
    assert {status[id_] for id_ in ("9999", "behind-next", "behind-block")} == {"PENDING"}


def test_jobs_without_a_group_all_go_at_once_in_any_mode(aftermath: Aftermath) -> None:
    """Null, or as another program may write it: empty."""
    ids = [*(f"null-{n}" for n in range(3)), "empty-0", "empty-1", aftermath.jobs["event-empty"].id]
    status = {job.id: job.status for job in aftermath.jobs.values()}
    assert {status[id_] for id_ in ids} == {"COMPLETED"}
    assert {aftermath.groups_at_the_queue[id_] for id_ in ids} == {""}
    assert not any("fleet-group" in aftermath.received[id_].headers for id_ in ids)


def test_an_unknown_mode_gets_into_no_store_and_no_subscription(ground: Ground) -> None:
    with pytest.raises(IntegrityError), ground.store.engine.connect() as connection, connection.begin():
        connection.execute(insert(dispatch_jobs), [{**ROW, "id": "a", "mode": "SOMETIMES"}])
    wrong = fleet_of(ground).run(
        "events", "subscribe", "--pattern", "a", "--target", "http://h/", "--mode", "SOMETIMES"
    )
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert ground.states() == {}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.long)])
def test_many_events_of_1_mib_are_not_in_memory_together(ground: Ground, count: int) -> None:
    """Spark has 1 GiB here: two hundred of them in one batch would be too many."""
    fleet = fleet_of(ground)
    assert fleet.run("events", "subscribe", "--pattern", "a", "--target", "http://127.0.0.1:1/").code == 0
    event = lines({"type": "a", "payload": "e" * (MIB - 2)})
    for _ in range(count // 20):
        assert fleet.run("events", "add", "--file", "-", input_text=event * 20).code == 0
    with ground.leading() as feed:
        done = feed.once()
    assert (done.events, done.jobs, done.sent) == (count, count, count)


DEEP_AND_WIDE = [
    pytest.param("sqlite", 3000, id="small"),
    pytest.param("sqlite", 200_000, id="sqlite-whole", marks=pytest.mark.long),
    pytest.param("postgresql", 200_000, id="postgresql-whole", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("database_url", "depth"), DEEP_AND_WIDE, indirect=["database_url"])
def test_a_deep_group_goes_in_order_a_window_at_a_time_and_delays_no_other(
    ground: Ground, depth: int, capsys: pytest.CaptureFixture[str]
) -> None:
    ground.ttl_ms = 30_000
    deep = ground.add(depth, groups=1, group="deep")
    strict = ground.add(depth // 10, groups=1, group="strict", modes=("BLOCK_ON_ERROR",))
    with ground.leading(batch_size=100_000) as feed:
        took_s = []
        for turn in range(3):
            others = ground.add(100, groups=100, group=f"other-{turn}-")
            began = time.monotonic()
            assert feed.step()
            took_s.append(time.monotonic() - began)
            ids = [body["id"] for body, _ in ground.drain()]
            window = deep[turn * 10 : (turn + 1) * 10]
            assert [id_ for id_ in ids if id_ in deep[: (turn + 2) * 10]] == window
            assert set(ids) == {*window, strict[turn], *others}
            ground.set_all(ids, status="COMPLETED")
    said = explain(ground.store.engine, deep[-1], now_ms=2**50, window=10)
    assert said is not None and said.endswith("10 jobs of its group are out already")
    with capsys.disabled():
        print(f"\n{depth} in one group: epochs of {', '.join(f'{one:.2f}' for one in took_s)} s")


@pytest.mark.parametrize(
    ("database_url", "groups"),
    [
        pytest.param("sqlite", 3000, id="small"),
        pytest.param("sqlite", 100_000, id="sqlite-whole", marks=pytest.mark.long),
        pytest.param("postgresql", 100_000, id="postgresql-whole", marks=pytest.mark.long),
    ],
    indirect=["database_url"],
)
def test_as_many_groups_as_jobs_go_in_one_epoch_each(
    ground: Ground, groups: int, capsys: pytest.CaptureFixture[str]
) -> None:
    ground.ttl_ms = 30_000
    added = ground.add(groups, groups=groups)
    with ground.leading(batch_size=100_000) as feed:
        began = time.monotonic()
        done = feed.once()
        took_s = time.monotonic() - began
    assert (done.epochs, done.sent, done.queued) == (1, groups, groups)
    messages = ground.drain()
    assert Counter(group for _, group in messages).most_common(1)[0][1] == 1
    ground.judge(set(added), messages)
    with capsys.disabled():
        print(f"\n{groups} groups of one: {took_s:.2f} s")
