from __future__ import annotations

from tests.state.stage import (
    OWNER_EPOCH,
    Stage,
    broker_ids,
    claim,
    claim_one,
    drain,
    entry,
    groups,
    in_group,
    in_groups,
    pool_settings,
    submit,
)


async def test_submitting_again_what_the_pool_holds_changes_nothing(stage: Stage) -> None:
    pool = await stage.pool()
    messages = [*in_group(3), entry("x", "h", high=True)]
    first = await pool.submit("q", OWNER_EPOCH, messages)
    again = await pool.submit("q", OWNER_EPOCH, messages)
    assert first == again
    assert (again.tag, again.accepted, again.room) == ("ok", 4, 996)
    assert sorted(await drain(pool)) == ["g0", "g1", "g2", "x"]


async def test_submitting_again_while_a_group_is_leased_does_not_make_it_ready(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    await claim_one(pool)
    await submit(pool, in_group(2))
    assert await claim(pool) == []


async def test_a_message_named_twice_in_one_submit_is_taken_once(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [entry("a"), entry("a"), entry("b")])
    assert await drain(pool) == ["a", "b"]


async def test_broker_ids_of_two_queues_do_not_meet(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [entry("1", "g", queue="q1")], queue="q1")
    await submit(pool, [entry("1", "g", queue="q2")], queue="q2")
    claimed = await claim_one(pool, chunk=2)
    assert [(e.queue, e.broker_id) for e in claimed.entries] == [("q1", "1"), ("q2", "1")]


async def test_a_message_comes_out_as_it_went_in(stage: Stage) -> None:
    pool = await stage.pool()
    sent = entry("a", "g", high=True)
    sent.lane, sent.auth_token, sent.batch, sent.source_holds_groups = "lane of its own", "tökén", "", False
    await submit(pool, [sent])
    assert (await claim_one(pool)).entries == [sent]


async def test_capacity_is_exact(stage: Stage) -> None:
    pool = await stage.pool(capacity=100)
    await submit(pool, in_group(50, "a"))
    answer = await pool.submit("q", OWNER_EPOCH, in_group(50, "b"))
    assert (answer.accepted, answer.room) == (50, 0)
    answer = await pool.submit("q", OWNER_EPOCH, [entry("one too many")])
    assert (answer.tag, answer.accepted, answer.room) == ("ok", 0, 0)


async def test_a_share_of_fifty_is_taken_or_refused_whole(stage: Stage) -> None:
    pool = await stage.pool(capacity=120)
    answer = await pool.submit("q", OWNER_EPOCH, in_groups(150))
    assert (answer.accepted, answer.room) == (100, 20)
    assert len(await claim(pool, 200)) == 10
    assert await pool.room() == 20


async def test_everything_after_a_refused_share_is_refused(stage: Stage) -> None:
    pool = await stage.pool(capacity=60)
    # The third share would fit by itself, but its messages would overtake the second's.
    answer = await pool.submit("q", OWNER_EPOCH, in_group(105))
    assert answer.accepted == 50
    assert len(await drain(pool)) == 50


async def test_messages_the_pool_holds_take_no_room_a_second_time(stage: Stage) -> None:
    pool = await stage.pool(capacity=50)
    await submit(pool, in_group(50))
    answer = await pool.submit("q", OWNER_EPOCH, in_group(50))
    assert (answer.accepted, answer.room) == (50, 0)


async def test_what_the_pool_holds_is_not_refused_after_its_capacity_was_lowered(stage: Stage) -> None:
    # The coordinator would nack at the source what is delivered here all the same.
    pool = await stage.pool(capacity=50)
    await submit(pool, in_group(50))
    await pool.configure("2", pool_settings(capacity=10))
    answer = await pool.submit("q", OWNER_EPOCH, in_group(50))
    assert (answer.accepted, answer.room) == (50, 0)


async def test_an_unknown_pool_takes_nothing_and_leaves_no_key(stage: Stage) -> None:
    answer = await stage.unknown_pool().submit("q", OWNER_EPOCH, in_group(1))
    assert (answer.tag, answer.accepted) == ("unknown", 0)
    assert await stage.keys() == set()


async def test_a_draining_pool_takes_nothing_and_delivers_what_it_holds(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    await pool.configure("2", pool_settings(draining=True))
    answer = await pool.submit("q", OWNER_EPOCH, [entry("late")])
    assert (answer.tag, answer.accepted) == ("draining", 0)
    assert await drain(pool) == ["g0", "g1"]


async def test_an_older_owner_of_the_queue_is_refused_as_stale(stage: Stage) -> None:
    pool = await stage.pool()
    assert (await pool.submit("q", "200", in_group(1))).tag == "ok"
    answer = await pool.submit("q", "199", [entry("stale")])
    assert (answer.tag, answer.accepted) == ("stale", 0)
    assert await drain(pool) == ["g0"]


async def test_an_owner_is_stale_only_for_its_own_queue(stage: Stage) -> None:
    pool = await stage.pool()
    await pool.submit("q", "200", in_group(1))
    assert (await pool.submit("other", "199", [entry("x", "x", queue="other")])).tag == "ok"


async def test_an_empty_submit_asks_for_the_room(stage: Stage) -> None:
    pool = await stage.pool(capacity=7)
    answer = await pool.submit("q", OWNER_EPOCH, [])
    assert (answer.tag, answer.accepted, answer.room) == ("ok", 0, 7)


async def test_a_group_has_one_place_in_line_whatever_is_submitted_to_it(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [entry("1")])
    await submit(pool, [entry("2", high=True)])
    await submit(pool, [entry("3"), entry("4", high=True)])
    await submit(pool, [entry("5", "other", high=True), entry("6", "other")])
    assert groups(await claim(pool, 10)) == ["g", "other"]


async def test_thousands_of_messages_in_one_submit_all_arrive_in_order(stage: Stage) -> None:
    # Beyond what Lua's unpack can hold at once.
    pool = await stage.pool(capacity=20_000)
    await submit(pool, in_group(9_000) + in_groups(3_000, "other"))
    claimed = await claim_one(pool, chunk=9_000)
    assert broker_ids(claimed) == [f"g{i}" for i in range(9_000)]
    assert await pool.room() == 8_000


async def test_a_pool_smaller_than_a_share_takes_what_it_has_room_for(stage: Stage) -> None:
    pool = await stage.pool(capacity=10)
    answer = await pool.submit("q", OWNER_EPOCH, in_groups(40))
    assert (answer.tag, answer.accepted, answer.room) == ("ok", 10, 0)
