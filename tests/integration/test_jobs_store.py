"""The job store on both databases: what it keeps, and what it changes by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sqlalchemy import select

from fleet.jobs.database import reading
from fleet.jobs.records import STATUSES, Job, NewEvent, Subscription, Taken
from fleet.jobs.schema import dispatch_jobs
from fleet.jobs.store import JobStore
from tests.integration.job_store import added, at_once, job, job_of, set_values

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


# By hand -------------------------------------------------------------------------------------------


def test_only_what_is_in_error_is_retried_and_as_the_next_attempt(store: JobStore) -> None:
    for status in STATUSES:
        one = added(store)
        set_values(store, one, status=status, scheduled_ms=5, completed_ms=6)
        assert store.retry(one.id) is (status == "ERROR")
        found = job_of(store, one.id)
        if status == "ERROR":
            assert (found.status, found.attempt, found.scheduled_ms, found.completed_ms) == ("PENDING", 2, None, None)
        else:
            assert (found.status, found.attempt, found.scheduled_ms) == (status, 1, 5)
    assert store.retry("nobody") is False


def test_only_what_waits_or_is_in_error_is_cancelled(store: JobStore) -> None:
    for status in STATUSES:
        one = added(store)
        set_values(store, one, status=status)
        may = status in ("PENDING", "QUEUED", "ERROR")
        assert store.cancel(one.id) is may
        found = job_of(store, one.id)
        assert found.status == ("CANCELLED" if may else status)


def test_of_a_cancel_and_a_claim_at_once_one_wins(store: JobStore) -> None:
    for one in store.add_jobs([job() for _ in range(30)]).ids:
        calls: list[Callable[[], object]] = [partial(store.cancel, one), partial(store.take, one, 1)]
        cancelled, claim = at_once(calls)
        assert cancelled is not isinstance(claim, Taken)


def test_a_group_or_a_pool_is_retried_and_cancelled_as_a_whole(store: JobStore) -> None:
    ones = [added(store, msg_group=group, pool=pool) for group in ("g", "h") for pool in ("P", "Q")]
    for one in ones:
        set_values(store, one, status="ERROR")
    assert store.retry_all(group="g", pool="P") == 1
    assert store.retry_all(pool="P") == 1
    assert store.retry_all() == 2
    assert store.cancel_all(group="h") == 2
    assert store.stats()["PENDING"] == store.stats()["CANCELLED"] == 2


def test_jobs_are_listed_the_newest_first_by_what_is_asked(store: JobStore) -> None:
    ids = store.add_jobs([job(msg_group=f"g{n % 2}", pool=f"P{n % 3}") for n in range(6)]).ids
    set_values(store, Job(id=ids[0], target_url="", payload=""), status="ERROR")
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
