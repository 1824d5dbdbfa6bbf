"""The job store on both databases: what it keeps, what it refuses to change, who wins a race."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import pytest
from sqlalchemy import select, text, update

from fleet.errors import InvalidConfig, JobStoreError, JobStoreUnavailable
from fleet.jobs import schema
from fleet.jobs.database import open_engine, parse_url, reading, writing
from fleet.jobs.records import STATUSES, Busy, Claimed, Expired, Job, NewEvent, NewJob, Over, Subscription
from fleet.jobs.schema import dispatch_jobs
from fleet.jobs.store import MARGIN_MS, JobStore
from fleet.outcome import Delivered, Failed
from tests.postgres_server import running_postgres

T = TypeVar("T")


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def boot_ms(self) -> float:
        return float(self.now_ms)


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
def store(database_url: str, clock: Hand) -> Iterator[JobStore]:
    store = JobStore(open_engine(parse_url(database_url)), clock=clock)
    store.migrate()
    yield store
    store.close()


def job(**given: object) -> NewJob:
    base = NewJob(target_url="http://127.0.0.1:1/", payload='{"n":1}')
    return dataclasses.replace(base, **given)  # type: ignore[arg-type]


def added(store: JobStore, **given: object) -> Job:
    (id_,) = store.add_jobs([job(**given)]).ids
    found = store.job(id_)
    assert found is not None
    return found


def claimed(store: JobStore, job: Job) -> Job:
    claim = store.claim(job.id, job.attempt)
    assert isinstance(claim, Claimed)
    return claim.job


def at_once(calls: list[Callable[[], T]]) -> list[T]:
    """All of them, from threads that start together."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


# Tables --------------------------------------------------------------------------------------------

_OPENS = "import sys; from fleet.jobs.database import *; from fleet.jobs.store import JobStore; sys.stdin.read(1);"
_OPENS += "s = JobStore(open_engine(parse_url(sys.argv[1]))); s.migrate(); print(s.stats()['PENDING'])"


def test_processes_that_start_at_once_make_the_tables_one_time(database_url: str) -> None:
    command = [sys.executable, "-c", _OPENS, database_url]
    several = [subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True) for _ in range(4)]
    for one in several:
        assert one.stdin is not None
        one.stdin.write("x")
        one.stdin.flush()
    ends = [one.communicate(timeout=60) for one in several]
    assert ends == [("0\n", "")] * 4
    engine = open_engine(parse_url(database_url))
    with reading(engine) as connection:
        assert connection.execute(select(schema.schema_version)).scalars().all() == [schema.VERSION]
    engine.dispose()


def test_threads_with_connections_of_their_own_make_the_tables_one_time(database_url: str) -> None:
    stores = [JobStore(open_engine(parse_url(database_url))) for _ in range(8)]
    at_once([store.migrate for store in stores])
    with reading(stores[0].engine) as connection:
        assert connection.execute(select(schema.schema_version)).scalars().all() == [schema.VERSION]
    for store in stores:
        store.close()


def test_an_older_schema_is_brought_forward_step_by_step_and_once(store: JobStore) -> None:
    steps = {2: ["ALTER TABLE events ADD COLUMN extra text"], 3: ["UPDATE events SET extra = 'seen'"]}
    store.add_events([NewEvent(type="a", payload="1")])
    at_once([lambda: schema.migrate(store.engine, version=3, steps=steps)] * 3)
    with reading(store.engine) as connection:
        assert connection.execute(text("SELECT extra FROM events")).scalars().all() == ["seen"]
        assert connection.execute(select(schema.schema_version)).scalars().all() == [3]


def test_a_step_that_fails_changes_nothing(store: JobStore) -> None:
    steps = {2: ["ALTER TABLE events ADD COLUMN extra text", "ALTER TABLE nothing ADD COLUMN extra text"]}
    with pytest.raises(Exception, match="nothing"):
        schema.migrate(store.engine, version=2, steps=steps)
    with reading(store.engine) as connection:
        assert connection.execute(select(schema.schema_version)).scalars().all() == [schema.VERSION]
    schema.migrate(store.engine, version=2, steps={2: steps[2][:1]})


def test_a_newer_schema_than_ours_is_refused(store: JobStore) -> None:
    with writing(store.engine) as connection:
        connection.execute(schema.schema_version.update(), {"version": schema.VERSION + 1})
    with pytest.raises(JobStoreError, match="install a newer one"):
        store.migrate()


@pytest.mark.parametrize(
    "url", ["", "nonsense", "mysql://u:secret@h/d", "sqlite://", "sqlite:///:memory:", "http://:x"]
)
def test_a_url_that_names_no_database_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_url(url)
    assert "secret" not in str(refused.value)


def test_a_database_that_goes_away_is_named_and_one_that_came_back_is_used() -> None:
    with running_postgres() as first:
        store = JobStore(open_engine(parse_url(first.url())))
        store.migrate()
        first.server.kill()
        with pytest.raises(JobStoreUnavailable) as away:
            store.stats()
        assert f"127.0.0.1:{first.port}" in str(away.value) and "\n" not in str(away.value)
        store.close()


def test_connections_of_a_restarted_database_are_replaced(store: JobStore) -> None:
    store.stats()
    if store.engine.dialect.name == "postgresql":
        other = open_engine(store.engine.url)
        with writing(other) as connection:
            connection.execute(
                text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                     " AND datname = current_database()")
            )  # fmt: skip
        other.dispose()
    assert store.stats()["PENDING"] == 0


# Adding --------------------------------------------------------------------------------------------


def test_an_idempotency_key_is_accepted_once_in_a_batch_and_across_batches(store: JobStore) -> None:
    first = store.add_jobs([job(id="a", idempotency_key="k"), job(id="b", idempotency_key="k"), job(id="c")])
    again = store.add_jobs([job(id="d", idempotency_key="k"), job(id="c"), job(), job()])
    assert (first.ids, first.known) == (("a", "c"), 1)
    assert (len(again.ids), again.known) == (2, 2)
    assert store.stats()["PENDING"] == 4


def test_adders_at_once_accept_a_key_once(store: JobStore) -> None:
    batches = [[job(idempotency_key=f"k{n}") for n in range(200)] for _ in range(4)]
    done = at_once([partial(store.add_jobs, batch) for batch in batches])
    assert sum(len(one.ids) for one in done) == 200
    assert sum(one.known for one in done) == 600


def test_jobs_keep_the_order_in_which_they_were_added_even_with_ids_that_do_not_rise(store: JobStore) -> None:
    ids = [f"job-{n}" for n in range(1, 12)] + ["Z", "a", "ä", "B"]
    store.add_jobs([job(id=id_, msg_group="g") for id_ in ids[:6]])
    store.add_jobs([job(id=id_, msg_group="g") for id_ in ids[6:]])
    with reading(store.engine) as connection:
        order = (dispatch_jobs.c.sequence, dispatch_jobs.c.created_ms, dispatch_jobs.c.id)
        assert connection.execute(select(dispatch_jobs.c.id).order_by(*order)).scalars().all() == ids


def test_ids_sort_by_their_bytes_whatever_the_database_thinks_of_letters(store: JobStore) -> None:
    ids = ["a", "B", "_", "ä", "Z", "z", "1", "-", "\U0001f600", "\ufffd"]
    store.add_jobs([job(id=id_) for id_ in ids])
    with reading(store.engine) as connection:
        found = connection.execute(select(dispatch_jobs.c.id).order_by(dispatch_jobs.c.id)).scalars().all()
    assert found == sorted(ids, key=str.encode)


def test_a_million_bytes_and_any_letter_come_back_as_they_were(store: JobStore) -> None:
    payload = '{"text":"' + "ü\\u0000😀" * 100_000 + '"}'
    assert added(store, payload=payload, msg_group="grüße 😀").payload == payload


def test_a_job_that_is_due_in_the_last_year_there_is_or_was_due_in_the_first_is_kept(store: JobStore) -> None:
    for moment in (253_402_300_799_999, -62_135_596_800_000):
        assert added(store, scheduled_ms=moment).scheduled_ms == moment


# Claims --------------------------------------------------------------------------------------------


def test_of_two_claimers_of_one_job_one_wins(store: JobStore) -> None:
    for one in store.add_jobs([job() for _ in range(40)]).ids:
        won, lost = sorted(
            at_once([partial(store.claim, one, 1)] * 2), key=lambda claim: isinstance(claim, Busy)
        )  # fmt: skip
        assert isinstance(won, Claimed) and isinstance(lost, Busy)
        assert lost.until_ms == won.job.claimed_until_ms


def test_of_two_claimers_of_a_lapsed_claim_one_wins(store: JobStore, clock: Hand) -> None:
    jobs = [claimed(store, added(store)) for _ in range(40)]
    clock.now_ms += 10**6
    for one in jobs:
        claims = at_once([partial(store.claim, one.id, 1)] * 2)
        assert sorted(type(claim).__name__ for claim in claims) == ["Busy", "Claimed"]


@pytest.mark.parametrize("status", ["PENDING", "QUEUED"])
def test_a_job_that_waits_is_claimed_for_its_timeout_and_a_margin(store: JobStore, clock: Hand, status: str) -> None:
    one = added(store, timeout_seconds=7)
    _set(store, one, status=status)
    job = claimed(store, one)
    assert (job.status, job.claimed_until_ms) == ("IN_PROGRESS", clock.now_ms + 7_000 + MARGIN_MS)


def test_a_claim_is_somebody_elses_until_its_time_is_over_and_then_anybodys(store: JobStore, clock: Hand) -> None:
    first = claimed(store, added(store))
    assert first.claimed_until_ms is not None
    clock.now_ms = first.claimed_until_ms - 1
    assert store.claim(first.id, 1) == Busy(first.claimed_until_ms)
    clock.now_ms += 1
    second = claimed(store, first)
    assert store.settle(first, Delivered(), started_ms=1, status_code=200) is None
    found = store.job(first.id)
    assert found is not None and found.status == "IN_PROGRESS"
    assert store.settle(second, Delivered(), started_ms=2, status_code=200) is not None
    assert [attempt.started_ms for attempt in store.attempts(first.id)] == [1, 2]


@pytest.mark.parametrize("status", ["COMPLETED", "ERROR", "EXPIRED", "CANCELLED"])
def test_what_is_finished_is_not_claimed(store: JobStore, status: str) -> None:
    one = added(store)
    _set(store, one, status=status)
    assert store.claim(one.id, 1) == Over(f"the job is {status}")


def test_another_attempt_than_the_one_that_counts_is_not_claimed(store: JobStore) -> None:
    one = added(store)
    _set(store, one, attempt=3)
    for attempt in (1, 2, 4):
        assert isinstance(store.claim(one.id, attempt), Over)
    assert isinstance(store.claim("nobody", 1), Over)


def test_what_has_expired_is_not_claimed_and_says_so(store: JobStore, clock: Hand) -> None:
    one = added(store, expires_ms=clock.now_ms)
    assert isinstance(store.claim(one.id, 1), Expired)
    found = store.job(one.id)
    assert found is not None and (found.status, found.completed_ms) == ("EXPIRED", clock.now_ms)
    assert isinstance(store.claim(added(store, expires_ms=clock.now_ms + 1).id, 1), Claimed)


# Outcomes ------------------------------------------------------------------------------------------


def test_a_job_that_fails_is_tried_again_after_growing_times_and_ends_in_error(store: JobStore, clock: Hand) -> None:
    one = added(store, max_retries=6)
    delays = []
    for _ in range(6):
        verdict = store.settle(
            claimed(store, one), Failed("HTTP 500", status=500), started_ms=clock.now_ms, status_code=500
        )  # fmt: skip
        assert verdict is not None and verdict.status == "PENDING" and verdict.scheduled_ms is not None
        delays.append((verdict.scheduled_ms - clock.now_ms) // 1000)
        again = store.job(one.id)
        assert again is not None and again.attempt == one.attempt + 1
        assert (again.scheduled_ms, again.queued_ms, again.claimed_until_ms) == (verdict.scheduled_ms, None, None)
        one = again
        clock.now_ms += 1
    assert delays == [5, 15, 30, 60, 120, 120]
    store.settle(claimed(store, one), Failed("HTTP 503", status=503), started_ms=clock.now_ms, status_code=503)
    found = store.job(one.id)
    assert found is not None
    assert (found.status, found.attempt, found.last_error) == ("ERROR", 7, "HTTP 503")
    assert [(a.attempt, a.status_code, a.outcome) for a in store.attempts(one.id)] == [
        (n, 503 if n == 7 else 500, "ERROR_PROCESS") for n in range(1, 8)
    ]


def test_an_attempt_that_got_lost_on_its_way_spends_no_retry(store: JobStore) -> None:
    one = added(store, max_retries=1)
    _set(store, one, attempt=5)
    one = dataclasses.replace(one, attempt=5)
    verdict = store.settle(claimed(store, one), Failed("HTTP 500"), started_ms=1, status_code=500)
    assert verdict is not None and verdict.status == "PENDING"


def test_a_failure_that_two_servers_tell_of_spends_one_retry(store: JobStore, clock: Hand) -> None:
    first = claimed(store, added(store, max_retries=1))
    clock.now_ms += 10**6
    second = claimed(store, first)
    assert store.settle(first, Failed("HTTP 500"), started_ms=1, status_code=500) is None
    verdict = store.settle(second, Failed("HTTP 500"), started_ms=2, status_code=500)
    assert verdict is not None and verdict.status == "PENDING"


def test_a_job_that_was_delivered_is_completed(store: JobStore, clock: Hand) -> None:
    one = added(store)
    store.settle(claimed(store, one), Delivered(), started_ms=clock.now_ms, status_code=200)
    found = store.job(one.id)
    assert found is not None
    assert (found.status, found.completed_ms, found.claimed_until_ms) == ("COMPLETED", clock.now_ms, None)
    (attempt,) = store.attempts(one.id)
    assert (attempt.outcome, attempt.status_code, attempt.error) == ("SUCCESS", 200, None)


def test_the_same_settlement_twice_counts_once(store: JobStore) -> None:
    one = claimed(store, added(store))
    done = at_once([lambda: store.settle(one, Failed("x"), started_ms=1, status_code=None)] * 2)
    assert sorted(verdict is None for verdict in done) == [False, True]
    found = store.job(one.id)
    assert found is not None and found.attempt == 2 and len(store.attempts(one.id)) == 1


# By hand -------------------------------------------------------------------------------------------


def test_only_what_is_in_error_is_retried_and_as_the_next_attempt(store: JobStore) -> None:
    for status in STATUSES:
        one = added(store)
        _set(store, one, status=status, scheduled_ms=5, completed_ms=6)
        assert store.retry(one.id) is (status == "ERROR")
        found = store.job(one.id)
        assert found is not None
        if status == "ERROR":
            assert (found.status, found.attempt, found.scheduled_ms, found.completed_ms) == ("PENDING", 2, None, None)
        else:
            assert (found.status, found.attempt, found.scheduled_ms) == (status, 1, 5)
    assert store.retry("nobody") is False


def test_only_what_waits_is_cancelled(store: JobStore) -> None:
    for status in STATUSES:
        one = added(store)
        _set(store, one, status=status)
        assert store.cancel(one.id) is (status in ("PENDING", "QUEUED"))
        found = store.job(one.id)
        assert found is not None
        assert found.status == ("CANCELLED" if status in ("PENDING", "QUEUED") else status)


def test_of_a_cancel_and_a_claim_at_once_one_wins(store: JobStore) -> None:
    for one in store.add_jobs([job() for _ in range(30)]).ids:
        calls: list[Callable[[], object]] = [partial(store.cancel, one), partial(store.claim, one, 1)]
        cancelled, claim = at_once(calls)
        assert cancelled is not isinstance(claim, Claimed)


def test_a_group_or_a_pool_is_retried_and_cancelled_as_a_whole(store: JobStore) -> None:
    ones = [added(store, msg_group=group, pool=pool) for group in ("g", "h") for pool in ("P", "Q")]
    for one in ones:
        _set(store, one, status="ERROR")
    assert store.retry_all(group="g", pool="P") == 1
    assert store.retry_all(pool="P") == 1
    assert store.retry_all() == 2
    assert store.cancel_all(group="h") == 2
    assert store.stats()["PENDING"] == store.stats()["CANCELLED"] == 2


def test_jobs_are_listed_the_newest_first_by_what_is_asked(store: JobStore) -> None:
    ids = store.add_jobs([job(msg_group=f"g{n % 2}", pool=f"P{n % 3}") for n in range(6)]).ids
    _set(store, Job(id=ids[0], target_url="", payload=""), status="ERROR")
    assert [one.id for one in store.jobs()] == sorted(ids, reverse=True)
    assert [one.id for one in store.jobs(status="ERROR")] == [ids[0]]
    assert {one.msg_group for one in store.jobs(group="g1")} == {"g1"}
    assert len(store.jobs(pool="P2")) == 2 and len(store.jobs(limit=1)) == 1 and len(store.jobs(limit=0)) == 6


# Events and subscriptions --------------------------------------------------------------------------


def test_an_event_is_added_once(store: JobStore) -> None:
    assert store.add_events([NewEvent(id="e", type="a:b", payload="1", msg_group="g")]).known == 0
    assert store.add_events([NewEvent(id="e", type="a:c", payload="2")]).known == 1
    (event,) = store.events()
    assert (event.type, event.payload, event.msg_group, event.fanned_out) == ("a:b", "1", "g", 0)


def test_a_subscription_is_there_until_it_is_removed(store: JobStore) -> None:
    wanted = Subscription(name="s", pattern="a:*", target_url="http://h/")
    assert store.subscribe(wanted) is True
    assert store.subscribe(wanted) is False
    assert [one.pattern for one in store.subscriptions()] == ["a:*"]
    assert store.unsubscribe("s") is True
    assert store.unsubscribe("s") is False


def _set(store: JobStore, job: Job, **values: object) -> None:
    with writing(store.engine) as connection:
        connection.execute(update(dispatch_jobs).where(dispatch_jobs.c.id == job.id).values(**values))
