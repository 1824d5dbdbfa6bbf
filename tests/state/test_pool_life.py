"""Configured, drained, removed; fenced by a queue's new owner; asked for what it holds and for its room."""

from __future__ import annotations

import pytest

from fleet.state.entry import ACK, outbox_item
from fleet.state.keys import ROOM_CHANNEL
from fleet.state.pool import Pool, failed
from tests.state.stage import (
    OWNER_EPOCH,
    Stage,
    claim,
    claim_one,
    drain,
    entry,
    hearing,
    in_group,
    in_groups,
    pause,
    pool_settings,
    settle,
    settlement,
    submit,
)


async def emptied(pool: Pool) -> None:
    for worker in await pool.outboxes():
        await pool.trim_outbox(worker, list(await pool.outbox(worker)))


async def test_an_older_revision_changes_nothing(stage: Stage) -> None:
    pool = stage.unknown_pool()
    assert await pool.configure("5", pool_settings(concurrency=3, capacity=5))
    assert not await pool.configure("4", pool_settings(concurrency=9, capacity=9, draining=True))
    await submit(pool, in_groups(5))
    assert len(await claim(pool, 9)) == 3
    assert await pool.configure("5", pool_settings(concurrency=4, capacity=5))
    assert len(await claim(pool, 9)) == 1


async def test_a_setting_that_is_no_longer_given_is_gone(stage: Stage) -> None:
    pool = await stage.pool(rate_limit_per_minute=1, draining=True, on_failure="skip")
    await pool.configure("2", pool_settings())
    settings = await stage.client.hgetall(pool.keys.settings)
    assert settings == {
        "revision": "2",
        "concurrency": "10",
        "capacity": "1000",
        "on_failure": "return",
        "park_after": "10",
    }


async def test_a_new_configuration_does_not_resume_a_paused_pool(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    await pause(pool)
    await pool.configure("2", pool_settings())
    assert await claim(pool) == []


async def test_a_pool_that_does_not_drain_is_kept(stage: Stage) -> None:
    pool = await stage.pool()
    assert await pool.remove("9") == "kept"
    assert await stage.client.exists(pool.keys.settings) == 1


async def test_an_older_revision_removes_nothing(stage: Stage) -> None:
    pool = stage.unknown_pool()
    await pool.configure("5", pool_settings(draining=True))
    assert await pool.remove("4") == "kept"
    assert await pool.remove("5") == "gone"


async def test_a_draining_pool_goes_when_it_holds_nothing_any_more(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    await pool.configure("2", pool_settings(draining=True))
    assert await pool.remove("2") == "busy"
    claimed = await claim_one(pool)
    await settle(pool, settlement(claimed, release="keep"))
    assert await pool.remove("2") == "busy"
    await settle(pool, settlement(claimed, count=0))
    assert await pool.remove("2") == "busy", "an outcome still waits in an outbox"
    await emptied(pool)
    assert await pool.remove("2") == "gone"
    # The epochs of the queues' owners outlive it: one that was stopped meanwhile may still submit.
    assert await stage.keys() == {pool.keys.epochs}
    assert 0 < await stage.client.pttl(pool.keys.epochs) <= 3_600_000
    assert await pool.remove("2") == "gone"


async def test_a_fence_refuses_the_older_owner_and_not_the_new_one(stage: Stage) -> None:
    pool = await stage.pool()
    assert await pool.fence("q", "200")
    assert (await pool.submit("q", "199", in_group(1))).tag == "stale"
    assert (await pool.submit("q", "200", in_group(1))).tag == "ok"


async def test_a_fence_never_falls_back(stage: Stage) -> None:
    pool = await stage.pool()
    assert await pool.fence("q", "1700000000000200")
    assert await pool.fence("q", "1700000000000200")
    assert not await pool.fence("q", "1700000000000199")
    assert not await pool.fence("q", "300"), "compared as numbers"
    assert (await pool.submit("q", "1700000000000199", in_group(1))).tag == "stale"


async def test_held_tells_queued_leased_and_outboxed_messages_from_unknown_ones(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(3))
    done = settlement(await claim_one(pool))
    await settle(pool, done)
    await claim_one(pool)
    asked = [entry(i).key for i in ("g0", "g1", "g2", "nobody")]
    assert await pool.queued(asked) == ([False, True, True, False], done.items)


async def test_held_sees_the_outbox_of_every_worker(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(2))
    for worker in ("w1", "w2"):
        await settle(pool, settlement(await claim_one(pool, worker=worker)), worker=worker)
    flags, items = await pool.queued([])
    assert flags == []
    assert sorted(items) == [outbox_item(e, ACK) for e in in_groups(2)]


async def test_held_answers_for_thousands(stage: Stage) -> None:
    pool = await stage.pool(capacity=10_000)
    sent = in_group(5_000)
    await submit(pool, sent)
    assert await pool.queued([e.key for e in sent] + ["x"]) == ([True] * 5_000 + [False], [])


async def test_room_is_what_capacity_leaves(stage: Stage) -> None:
    pool = await stage.pool(capacity=5)
    assert await pool.room() == 5
    await submit(pool, in_group(3))
    assert await pool.room() == 2
    await pool.configure("2", pool_settings(capacity=1))
    assert await pool.room() == 0


async def test_what_was_asked_for_before_capacity_was_lowered_is_taken_for_half_a_minute(stage: Stage) -> None:
    pool = await stage.pool(capacity=100)
    await submit(pool, in_groups(60))
    await pool.configure("2", pool_settings(capacity=50))
    assert await pool.room() == 0, "nothing more is asked for"
    assert (await pool.submit("q", OWNER_EPOCH, in_groups(30, "on-its-way"))).accepted == 30
    assert (await pool.submit("q", OWNER_EPOCH, in_groups(11, "too-many"))).accepted == 0, "more than was ever promised"
    stage.advance(29_999)
    await pool.configure("2", pool_settings(capacity=50))
    assert (await pool.submit("q", OWNER_EPOCH, in_groups(5, "late"))).accepted == 5
    stage.advance(1)
    answer = await pool.submit("q", OWNER_EPOCH, in_groups(1, "too-late"))
    assert (answer.accepted, answer.room) == (0, 0), "saying the same again prolongs nothing"


async def test_a_capacity_that_was_raised_again_promises_nothing_more(stage: Stage) -> None:
    pool = await stage.pool(capacity=100)
    await pool.configure("2", pool_settings(capacity=50))
    await pool.configure("3", pool_settings(capacity=200))
    assert not await stage.client.hexists(pool.keys.settings, "promised")
    await submit(pool, in_groups(50))
    assert await pool.room() == 150


@pytest.mark.parametrize("draining", [None, True])
async def test_a_pool_that_takes_nothing_has_no_room(stage: Stage, draining: bool | None) -> None:
    pool = stage.unknown_pool()
    if draining:
        await pool.configure("1", pool_settings(draining=True))
    assert await pool.room(1) == 0


async def test_who_waits_for_room_is_told_once_when_there_is_so_much(stage: Stage) -> None:
    pool = await stage.pool(capacity=4)
    await submit(pool, in_group(4))
    async with hearing(stage, ROOM_CHANNEL) as heard:
        assert await pool.room(2) == 0
        await settle(pool, settlement(await claim_one(pool)))
        assert await heard.since(pool.keys.settings) == []
        await settle(pool, settlement(await claim_one(pool)))
        assert await heard.since(pool.keys.settings) == ["P"]
        await drain(pool)
        assert await heard.since(pool.keys.settings) == []


async def test_who_finds_room_or_only_asks_is_not_told(stage: Stage) -> None:
    pool = await stage.pool(capacity=4)
    await submit(pool, in_group(2))
    async with hearing(stage, ROOM_CHANNEL) as heard:
        assert await pool.room(2) == 2
        assert await pool.room() == 2
        await drain(pool)
        assert await heard.since(pool.keys.settings) == []


async def test_siblings_of_a_failed_message_leave_room_too(stage: Stage) -> None:
    pool = await stage.pool(capacity=4)
    await submit(pool, in_group(4))
    await pool.room(4)
    async with hearing(stage, ROOM_CHANNEL) as heard:
        failing = settlement(await claim_one(pool), verdict="n1", release=failed(1, "b"))
        await settle(pool, failing)
        assert await heard.since(pool.keys.settings) == ["P"]


async def test_a_removed_pool_starts_anew_and_refuses_whom_it_had_fenced(stage: Stage) -> None:
    pool = await stage.pool(draining=True)
    await pool.fence("q", OWNER_EPOCH)
    assert await pool.remove("1") == "gone"
    await pool.configure("2", pool_settings())
    assert await stage.client.pttl(pool.keys.epochs) == -1
    assert (await pool.submit("q", str(int(OWNER_EPOCH) - 1), in_group(1))).tag == "stale"
    assert (await pool.submit("q", OWNER_EPOCH, in_group(1))).tag == "ok"
    assert await drain(pool) == ["g0"]


async def test_of_one_owner_a_call_below_the_attempt_that_was_fenced_is_refused(stage: Stage) -> None:
    pool = await stage.pool()
    one = [entry("1", "g")]
    assert (await pool.submit("q", "200", one, call=0)).tag == "ok"
    assert await pool.fence("q", "200", call=2)
    tags = [(await pool.submit("q", "200", one, call=call)).tag for call in (0, 1, 2)]
    assert tags == ["stale", "stale", "ok"]
    assert await pool.fence("q", "200", call=1), "late itself, it lowers nothing"
    assert await pool.fence("q", "200")
    assert (await pool.submit("q", "200", one, call=1)).tag == "stale"
    assert (await pool.submit("other", "100", [entry("2", "h")])).tag == "ok", "of another queue"
    assert (await pool.submit("q", "201", one)).tag == "ok", "a newer owner begins at none"
    assert (await pool.submit("q", "200", one, call=9)).tag == "stale"
    assert await pool.fence("q", "202")
    assert (await pool.submit("q", "202", one)).tag == "ok"
