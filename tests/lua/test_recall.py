"""What the last coordinator takes back from a pool: all of its queue that nobody delivers just now."""

from __future__ import annotations

from fleet.state.pool import Settlement, held
from tests.lua.stage import Stage, broker_ids, claim_one, drain, entry, in_group, in_groups, settle, submit


async def test_what_waits_comes_back_in_the_order_of_its_groups(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [*in_group(3), entry("h", high=True)])
    recalled = [broker_id for broker_id, _ in await pool.recall("q", 100)]
    assert recalled == ["h", "g0", "g1", "g2"]
    assert await pool.recall("q", 100) == []
    assert await drain(pool) == []
    assert await pool.room() == 1000
    assert await stage.keys() == {pool.keys.settings, pool.keys.epochs}


async def test_a_group_that_is_leased_stays_whole(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [*in_group(2), *in_groups(1, "other")])
    claimed = await claim_one(pool)
    assert [broker_id for broker_id, _ in await pool.recall("q", 100)] == ["other0"]
    await settle(pool, Settlement("g", claimed.epoch, [], "ready"))
    assert await drain(pool) == ["g0", "g1"]


async def test_messages_of_other_queues_stay_in_their_order(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [entry("1"), entry("2")])
    await submit(pool, [entry("a", queue="other"), entry("b", queue="other")], queue="other")
    await submit(pool, [entry("3")])
    assert [broker_id for broker_id, _ in await pool.recall("q", 100)] == ["1", "2", "3"]
    assert broker_ids(await claim_one(pool, chunk=5)) == ["a", "b"]


async def test_a_group_that_waits_for_another_try_comes_back_as_well(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    claimed = await claim_one(pool)
    await settle(pool, Settlement("g", claimed.epoch, [], held(60_000)))
    assert [broker_id for broker_id, _ in await pool.recall("q", 100)] == ["g0", "g1"]
    assert await stage.keys() == {pool.keys.settings, pool.keys.epochs}


async def test_a_long_pool_is_taken_back_in_several_calls(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(30))
    first = await pool.recall("q", 10)
    assert len(first) == 10
    assert len(await pool.recall("q", 100)) == 20
