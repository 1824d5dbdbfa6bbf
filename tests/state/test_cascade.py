"""One nack takes the rest of its batch and group with it."""

from __future__ import annotations

from typing import Any

from fleet.state.entry import nack, outbox_item
from fleet.state.pool import failed
from tests.state.stage import (
    OWNER_EPOCH,
    Stage,
    broker_ids,
    claim,
    claim_one,
    drain,
    entry,
    outboxed,
    settle,
    settlement,
    submit,
)

FAILS: dict[str, Any] = {"verdict": nack(30_000), "release": failed(10_000, "b")}


async def test_a_nack_takes_its_batch_and_group_out_of_both_tiers(stage: Stage) -> None:
    pool = await stage.pool()
    siblings = [entry("r2"), entry("h1", high=True), entry("h2", high=True)]
    await submit(pool, [entry("r1")])
    claimed = await claim_one(pool)
    await submit(pool, siblings)
    answer = await settle(pool, settlement(claimed, **FAILS))
    nacked = {outbox_item(sibling, nack(10_000)) for sibling in siblings}
    assert set(answer.cascaded) == nacked
    assert set(await outboxed(pool)) == nacked | {outbox_item(claimed.entries[0], nack(30_000))}
    assert await drain(pool) == []
    assert await pool.room() == 1000


async def test_a_failed_high_priority_message_takes_regular_siblings_along(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [entry("r1"), entry("h1", high=True), entry("h2", high=True)])
    answer = await settle(pool, settlement(await claim_one(pool), **FAILS))
    assert {item.split("\x1f")[1] for item in answer.cascaded} == {"r1", "h2"}
    assert await drain(pool) == []


async def test_other_batches_and_other_groups_stay_in_their_order(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(
        pool,
        [
            entry("b1"),
            entry("c1", batch="c"),
            entry("b2"),
            entry("c2", batch="c"),
            entry("other", "h"),
        ],
    )
    claimed = next(c for c in await claim(pool, 2) if c.lane == "g")
    answer = await settle(pool, settlement(claimed, **FAILS))
    assert answer.cascaded == [outbox_item(entry("b2"), nack(10_000))]
    assert broker_ids(await claim_one(pool, chunk=5)) == ["c1", "c2"]


async def test_where_the_source_holds_the_group_all_of_its_queue_goes_with_the_head_whatever_its_batch(
    stage: Stage,
) -> None:
    pool = await stage.pool()
    await submit(pool, [entry("1"), entry("2"), entry("x", queue="other")])
    await submit(pool, [entry("3", batch="c"), entry("4", batch="c", high=True), entry("other", "h")])
    claimed = next(c for c in await claim(pool, 2) if c.lane == "g")
    assert broker_ids(claimed) == ["4"]
    answer = await settle(pool, settlement(claimed, verdict=nack(30_000), release=failed(10_000, "c", "q")))
    assert [item.split("\x1f")[1] for item in answer.cascaded] == ["1", "2", "3"]
    assert await drain(pool) == ["x"]


async def test_what_was_settled_before_the_failure_stays_settled(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [entry("1"), entry("2"), entry("3")])
    claimed = await claim_one(pool, chunk=3)
    failing = settlement(claimed, count=2, **FAILS)
    failing.items[0] = outbox_item(claimed.entries[0], "a")
    await settle(pool, failing)
    verdicts = dict(item.split("\x1f")[1::2] for item in await outboxed(pool))
    assert verdicts == {"1": "a", "2": "n30000", "3": "n10000"}


async def test_a_nack_without_a_cascade_lets_its_group_go_on(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [entry("1"), entry("2")])
    await settle(pool, settlement(await claim_one(pool), verdict=nack(30_000)))
    await submit(pool, [entry("3")])
    assert await drain(pool) == ["2", "3"]


async def test_a_later_submit_of_a_failed_batch_and_group_is_refused_as_cascaded(stage: Stage) -> None:
    # The first half of the batch was settled, none of it was left, before the second half came.
    pool = await stage.pool()
    await submit(pool, [entry("1")])
    await settle(pool, settlement(await claim_one(pool), **FAILS))
    assert await pool.room() == 1000
    late = [entry("x", "h"), entry("2"), entry("3", high=True), entry("y", batch="c")]
    answer = await pool.submit("q", OWNER_EPOCH, late)
    assert (answer.tag, answer.accepted, set(answer.cascaded)) == ("ok", 4, {1, 2})
    assert sorted(await drain(pool)) == ["x", "y"]


async def test_a_cascaded_message_takes_no_room(stage: Stage) -> None:
    pool = await stage.pool(capacity=1)
    await submit(pool, [entry("1")])
    await settle(pool, settlement(await claim_one(pool), **FAILS))
    answer = await pool.submit("q", OWNER_EPOCH, [entry("2"), entry("x", "h")])
    assert (answer.accepted, answer.room, set(answer.cascaded)) == (2, 0, {0})


async def test_a_refused_share_says_nothing_of_cascades(stage: Stage) -> None:
    pool = await stage.pool(capacity=3)
    await submit(pool, [entry("1")])
    await settle(pool, settlement(await claim_one(pool), **FAILS))
    await submit(pool, [entry("v", "j"), entry("w", "k")])
    answer = await pool.submit("q", OWNER_EPOCH, [entry("2"), entry("x", "h"), entry("y", "i")])
    assert (answer.accepted, answer.cascaded) == (0, frozenset())


async def test_the_mark_of_a_failed_batch_expires(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [entry("1")])
    await settle(pool, settlement(await claim_one(pool), **FAILS))
    stage.advance(59_999)
    assert (await pool.submit("q", OWNER_EPOCH, [entry("2")])).cascaded == {0}
    stage.advance(1)
    await submit(pool, [entry("2")])
    assert await drain(pool) == ["2"]
    assert await stage.client.exists(pool.keys.failed) == 0


async def test_a_redelivered_message_of_a_failed_group_comes_in_a_new_batch_and_goes(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [entry("1")])
    await settle(pool, settlement(await claim_one(pool), **FAILS))
    await submit(pool, [entry("1", token="2", batch="next")])
    assert await drain(pool) == ["1"]


async def test_a_cascade_that_empties_the_high_priority_list_leaves_no_trace_of_it(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [entry("1")])
    claimed = await claim_one(pool)
    await submit(pool, [entry("2", high=True)])
    await settle(pool, settlement(claimed, **FAILS))
    assert await stage.client.smembers(pool.keys.high) == set()


async def test_a_batch_of_no_name_fails_by_itself(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [entry("1", batch=""), entry("2")])
    answer = await settle(pool, settlement(await claim_one(pool), **{**FAILS, "release": failed(10_000, "")}))
    assert answer.cascaded == []
    assert await drain(pool) == ["2"]
