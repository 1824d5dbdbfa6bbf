"""The plan: Spark's and the plain-Python one are the same, and both are what the modes promise."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from fleet.config.settings import DatabaseSettings, Settings
from fleet.jobs.database import reading
from fleet.jobs.store import JobStore, open_store
from spark import schemas, why
from spark.sources.queries import of_group, to_plan
from spark.sources.store import ask
from spark.transforms.plan import Limits, plan
from spark.why import Candidate, job_of
from tests.spark.cases import FAR_MS, NOW_MS, crowds, job_tables, pools_with_little_room, put

NO_POOLS: Mapping[str, int] = {}
QUEUED, ERROR, PENDING = "QUEUED", "ERROR", "PENDING"


def table(session: SparkSession, jobs: list[Candidate]) -> DataFrame:
    names = schemas.JOBS.names
    # As a store gives them: an empty group is none.
    read = [dataclasses.replace(job, msg_group=job.msg_group or None) for job in jobs]
    rows = [(*(getattr(job, name) for name in names), job.pool, NOW_MS) for job in read]
    return session.createDataFrame(rows, schemas.TO_PLAN)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    jobs=st.one_of(job_tables(), crowds()),
    window=st.integers(1, 4),
    room=st.sampled_from([1, 4, 12, None]),
    shards=st.integers(1, 3),
    pools=pools_with_little_room,
)
def test_the_plan_of_spark_is_the_plan_of_the_oracle(
    session: SparkSession, jobs: list[Candidate], window: int, room: int, shards: int, pools: dict[str, int]
) -> None:
    found = plan(table(session, jobs), limits=Limits(window=window, room=room, shards=shards, pools=pools))
    assert found.schema.names == schemas.TO_PUBLISH.names
    said = {row.job_id: (row.mode, row.pool) for row in found.collect()}
    assert said == {job.id: (job.mode, job.pool) for job in jobs if job.id in said}
    assert claims_in(found) == claims_of_the_oracle(jobs, window, room, shards, pools)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(jobs=crowds(), window=st.integers(1, 3))
def test_the_heads_that_are_read_of_a_store_are_enough_for_the_plan(
    store: JobStore, jobs: list[Candidate], window: int
) -> None:
    put(store.engine, jobs)
    with reading(store.engine) as connection:
        rows = connection.execute(to_plan(now_ms=NOW_MS, window=window)).mappings().all()
    assert claims_of_the_oracle([job_of(dict(row)) for row in rows], window, 500, 2) == claims_of_the_oracle(
        jobs, window, 500, 2
    )


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(jobs=crowds(), window=st.integers(1, 3))
def test_what_explain_reads_of_a_group_says_the_same_of_a_job(
    store: JobStore, jobs: list[Candidate], window: int
) -> None:
    put(store.engine, jobs)
    whole = why.verdicts(jobs, now_ms=NOW_MS, window=window)
    for job in jobs[:5]:
        with reading(store.engine) as connection:
            rows = connection.execute(of_group(job.id)).mappings().all()
        read = why.verdicts([job_of(dict(row)) for row in rows], now_ms=NOW_MS, window=window)
        assert read[job.id] == whole[job.id]


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(jobs=crowds(), window=st.integers(1, 3), room=st.sampled_from([7, 500]), pools=pools_with_little_room)
def test_what_spark_plans_of_a_store_is_what_the_oracle_plans_of_all_its_jobs(
    session: SparkSession, store: JobStore, jobs: list[Candidate], window: int, room: int, pools: dict[str, int]
) -> None:
    put(store.engine, jobs)
    url = store.engine.url.render_as_string(hide_password=False)
    found = plan(
        ask(session, url, "to_plan", now_ms=NOW_MS, window=window),
        limits=Limits(window=window, room=room, shards=2, pools=pools),
    )
    assert claims_in(found) == claims_of_the_oracle(jobs, window, room, 2, pools)


def claims_in(found: DataFrame) -> list[tuple[object, ...]]:
    """By shard and place: rows of a table have no order, `seq` is their order."""
    return sorted((tuple(row) for row in found.select(*schemas.CLAIMS.names).collect()), key=lambda claim: claim[:2])


def claims_of_the_oracle(
    jobs: list[Candidate], window: int, room: int | None, shards: int, pools: Mapping[str, int] = NO_POOLS
) -> list[tuple[object, ...]]:
    by_id = {job.id: job for job in jobs}
    planned = why.plan(jobs, now_ms=NOW_MS, window=window, room=room, shards=shards, pools=pools)
    claims = [(shard, seq, job, attempt, by_id[job].msg_group or None) for shard, seq, job, attempt in planned]
    return sorted(claims, key=lambda claim: claim[:2])


@pytest.fixture
def store(database_url: str, tmp_path: Path) -> Iterator[JobStore]:
    made = open_store(Settings(data_dir=tmp_path, database=DatabaseSettings(url=database_url)), durable=False)
    yield made
    made.close()


@settings(max_examples=300, deadline=None)
@given(jobs=job_tables(), window=st.integers(1, 3))
def test_what_goes_is_what_the_modes_promise(jobs: list[Candidate], window: int) -> None:
    found = why.verdicts(jobs, now_ms=NOW_MS, window=window)
    for job in jobs:
        if not found[job.id].goes:
            continue
        assert job.status == PENDING
        assert (job.scheduled_ms or 0) <= NOW_MS
        if not job.msg_group or job.mode == "IMMEDIATE":
            continue
        siblings = [one for one in jobs if one.msg_group == job.msg_group and not expired(one)]
        before = [one for one in siblings if one.place < job.place]
        going = [one for one in siblings if found[one.id].goes]
        if job.mode == "BLOCK_ON_ERROR":
            assert [one for one in before if one.status == ERROR or one.status in (QUEUED, "IN_PROGRESS")] == []
            assert [one for one in going if one.place < job.place] == []
            assert [one for one in siblings if one.mode == job.mode and (one in going or is_out(one))] == [job]
        else:
            assert [one for one in before if one.mode == "BLOCK_ON_ERROR" and is_out(one)] == []
            ordered = [one for one in siblings if one.mode == "NEXT_ON_ERROR"]
            assert sum(is_out(one) or found[one.id].goes for one in ordered) <= window or any(
                is_out(one) for one in ordered
            )
            passed_by = [one for one in before if one.mode == "NEXT_ON_ERROR" and one.status == PENDING]
            assert all(found[one.id].goes or (one.scheduled_ms or 0) > NOW_MS for one in passed_by)
            assert all(one.tried for one in passed_by if not found[one.id].goes)


def expired(job: Candidate) -> bool:
    return job.status == PENDING and job.expires_ms is not None and job.expires_ms <= NOW_MS


def is_out(job: Candidate) -> bool:
    return job.status in (QUEUED, "IN_PROGRESS")


def group(*given: str) -> list[Candidate]:
    """Jobs of one group in order: mode and status; `l`ater, to be `r`etried, put `b`ack before it was delivered."""
    modes = {"I": "IMMEDIATE", "N": "NEXT_ON_ERROR", "B": "BLOCK_ON_ERROR"}
    states = {"p": (PENDING, 1, None, 0), "q": (QUEUED, 1, None, 0), "i": ("IN_PROGRESS", 1, None, 0),
              "e": (ERROR, 1, None, 1), "r": (PENDING, 2, NOW_MS + 1, 1), "l": (PENDING, 1, FAR_MS, 0),
              "b": (PENDING, 2, NOW_MS + 1, 0)}  # fmt: skip
    return [
        Candidate(
            id=f"{place}{code}", msg_group="g", mode=modes[code[0]], sequence=99, created_ms=place,
            status=states[code[1]][0], attempt=states[code[1]][1], scheduled_ms=states[code[1]][2],
            tried=states[code[1]][3],
        )
        for place, code in enumerate(given)
    ]  # fmt: skip


PROMISES = {
    "block: one at a time": (["Bp", "Bp", "Bp"], ["0Bp"]),
    "block: its outcome is open": (["Bq", "Bp"], []),
    "block: an error holds it": (["Be", "Bp"], []),
    "block: a retry holds it": (["Br", "Bp"], []),
    "next and immediate pass an error": (["Be", "Np", "Ip", "Bp"], ["1Np", "2Ip"]),
    "next passes a retry": (["Br", "Np"], ["1Np"]),
    "next: up to the window": (["Nr", "Np", "Np", "Np"], ["1Np", "2Np", "3Np"]),
    "next: what is out counts": (["Nq", "Nq", "Np", "Np"], ["2Np"]),
    "block is a barrier both ways": (["Np", "Bp", "Np", "Ip"], ["0Np", "3Ip"]),
    "next waits for a block that is out": (["Bq", "Np"], []),
    "block waits for an immediate that may fail": (["Iq", "Bp"], []),
    "an unordered job of tomorrow holds nobody": (["Il", "Bp"], ["1Bp"]),
    "an ordered job of tomorrow holds what stands behind it": (["Nl", "Np", "Bp", "Ip"], ["3Ip"]),
    "block: a later one is out": (["Bp", "Bq"], []),
    "next waits for one whose target was not asked": (["Nb", "Np", "Ip"], ["2Ip"]),
    "block waits for one whose target was not asked": (["Nb", "Bp"], []),
    "block waits for an unordered one whose target was not asked": (["Ib", "Bp"], []),
    "next does not wait for an unordered one": (["Ib", "Np"], ["1Np"]),
    "block: one that is itself held by an error holds back nothing": (["Be", "Bp", "Np"], ["2Np"]),
    "block: one that is itself held by a retry holds back nothing": (["Nr", "Bp", "Np"], ["2Np"]),
    "block: holds others back although an error stands behind it": (["Bp", "Ne", "Np"], ["0Bp"]),
}
"""What stands in a group → what of it goes, with a window of three."""


@pytest.mark.parametrize("promise", PROMISES)
def test_a_mode_goes_as_it_promises(promise: str) -> None:
    jobs, goes = PROMISES[promise]
    assert [
        row[2] for row in why.plan(group(*jobs), now_ms=NOW_MS, window=3, room=100, shards=1, pools=NO_POOLS)
    ] == goes


def test_spark_keeps_the_promises_of_all_modes(session: SparkSession) -> None:
    jobs = [
        dataclasses.replace(job, id=f"{promise} {job.id}", msg_group=promise)
        for promise, (codes, _) in PROMISES.items()
        for job in group(*codes)
    ]
    found = plan(table(session, jobs), limits=Limits(window=3, room=None, shards=2)).collect()
    gone = {row.job_id for row in found}
    assert gone == {f"{promise} {code}" for promise, (_, goes) in PROMISES.items() for code in goes}


def test_spark_leaves_no_gap_in_a_group_of_two_pools(session: SparkSession) -> None:
    codes = "PQPQ"
    jobs = [
        dataclasses.replace(job, id=f"{mode}{place}", msg_group=mode, pool=codes[place])
        for mode in ("Np", "Ip")
        for place, job in enumerate(group(*[mode] * len(codes)))
    ]
    for most, gone in (
        ({"P": 0}, {"Ip1", "Ip3"}),
        ({"P": 1, "Q": 9}, {"Ip1", "Ip3", "Ip0"}),
        ({"Q": 3}, {"Np0", "Np1", "Np2", "Ip0", "Ip1", "Ip2", "Ip3"}),
    ):
        found = plan(table(session, jobs), limits=Limits(window=9, room=None, shards=2, pools=most))
        claims = claims_in(found)
        assert {claim[2] for claim in claims} == gone
        assert claims == claims_of_the_oracle(jobs, 9, None, 2, most)


@settings(max_examples=300, deadline=None)
@given(jobs=crowds(), window=st.integers(1, 3))
def test_a_group_whose_jobs_wait_for_nobody_goes_on(jobs: list[Candidate], window: int) -> None:
    """Nothing is out, failed, early or to be tried again: then its first job goes, and each IMMEDIATE one."""
    found = why.verdicts(jobs, now_ms=NOW_MS, window=window)
    for name in {job.msg_group for job in jobs} - {None, ""}:
        group = sorted((job for job in jobs if job.msg_group == name and not expired(job)), key=lambda job: job.place)
        due = [job for job in group if job.status == PENDING and (job.scheduled_ms or 0) <= NOW_MS]
        assert all(found[job.id].goes for job in due if job.mode == "IMMEDIATE")
        if group and due == group:
            assert found[min(group, key=lambda job: job.place).id].goes


@settings(max_examples=200, deadline=None)
@given(jobs=job_tables(), window=st.integers(1, 3))
def test_more_room_only_adds_to_what_goes(jobs: list[Candidate], window: int) -> None:
    """Never a gap: what an epoch takes of a group is the beginning of what all epochs would."""
    whole = why.plan(jobs, now_ms=NOW_MS, window=window, room=100, shards=1, pools=NO_POOLS)
    for room in range(len(whole)):
        assert why.plan(jobs, now_ms=NOW_MS, window=window, room=room, shards=1, pools=NO_POOLS) == whole[:room]


@settings(max_examples=200, deadline=None)
@given(jobs=job_tables(), window=st.integers(1, 3), pools=pools_with_little_room)
def test_a_pool_without_room_holds_no_other_up_and_leaves_no_gap_in_a_group(
    jobs: list[Candidate], window: int, pools: dict[str, int]
) -> None:
    whole = why.plan(jobs, now_ms=NOW_MS, window=window, room=None, shards=1, pools=NO_POOLS)
    some = {row[2] for row in why.plan(jobs, now_ms=NOW_MS, window=window, room=None, shards=1, pools=pools)}
    by_id = {job.id: job for job in jobs}
    for code, most in pools.items():
        assert sum(by_id[id_].pool == code for id_ in some) <= most
    left_out = [by_id[row[2]] for row in whole if row[2] not in some]
    gone = [by_id[id_] for id_ in some if by_id[id_].mode != "IMMEDIATE" and by_id[id_].msg_group]
    for job in left_out:
        if job.mode != "IMMEDIATE" and job.msg_group:
            assert [one for one in gone if one.msg_group == job.msg_group and one.place > job.place] == []
    mixed = {job.msg_group for job in jobs if job.pool in pools and job.msg_group}
    assert [job for job in left_out if job.pool not in pools and job.msg_group not in mixed] == []


def test_a_plan_in_plain_python_and_in_spark_take_the_same_fields() -> None:
    assert {field.name for field in dataclasses.fields(Candidate)} == set(schemas.TO_PLAN.names) - {"read_ms"}
