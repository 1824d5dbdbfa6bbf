"""What the last coordinator takes back from a pool: all of its queue that nobody delivers just now."""

from __future__ import annotations

from fleet.state.pool import Pool, Settlement, fenced, in_place
from tests.state.stage import Stage, broker_ids, claim, claim_one, drain, entry, in_group, in_groups, settle, submit


async def recalled(pool: Pool, most: int = 100) -> list[str]:
    return [broker_id async for page in pool.recall("q", most) for broker_id, _ in page]


async def test_what_waits_comes_back_in_the_order_of_its_groups(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [*in_group(3), entry("h", high=True)])
    assert await recalled(pool) == ["h", "g0", "g1", "g2"]
    assert await recalled(pool) == []
    assert await drain(pool) == []
    assert await pool.room() == 1000
    assert await stage.keys() == {pool.keys.settings, pool.keys.epochs}


async def test_a_group_that_is_leased_stays_whole(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [*in_group(2), *in_groups(1, "other")])
    claimed = await claim_one(pool)
    assert await recalled(pool) == ["other0"]
    await settle(pool, Settlement("g", claimed.epoch, [], "ready"))
    assert await drain(pool) == ["g0", "g1"]


async def test_messages_of_other_queues_stay_in_their_order(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [entry("1"), entry("2")])
    await submit(pool, [entry("a", queue="other"), entry("b", queue="other")], queue="other")
    await submit(pool, [entry("3")])
    assert await recalled(pool) == ["1", "2", "3"]
    assert broker_ids(await claim_one(pool, chunk=5)) == ["a", "b"]


async def test_a_group_that_waits_for_another_try_comes_back_as_well(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    claimed = await claim_one(pool)
    await settle(pool, Settlement("g", claimed.epoch, [], in_place(60_000)))
    assert await recalled(pool) == ["g0", "g1"]
    assert await stage.keys() == {pool.keys.settings, pool.keys.epochs}


async def test_how_often_a_group_was_refused_as_fenced_ends_with_it(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [*in_group(1), entry("mine", "shared"), entry("other", "shared", queue="other")])
    for claimed in await claim(pool, 2):
        await settle(pool, Settlement(claimed.lane, claimed.epoch, [], fenced(60_000)))
    assert await recalled(pool) == ["g0", "mine"]
    assert await stage.client.hgetall(pool.keys.tries) == {"\x1fshared": "1"}


async def test_a_long_pool_is_taken_back_in_several_calls(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(30))
    assert [len(page) async for page in pool.recall("q", 8)] == [8, 8, 8, 6]
    assert await stage.keys() == {pool.keys.settings, pool.keys.epochs}


async def test_groups_of_others_are_looked_at_once_a_round_and_keep_their_messages(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(30, "other", queue="other"), queue="other")
    await submit(pool, in_groups(3, "mine"))
    waiting = await claim_one(pool)
    await settle(pool, Settlement(waiting.lane, waiting.epoch, [], in_place(60_000)))
    assert sorted(await recalled(pool, 4)) == ["mine0", "mine1", "mine2"]
    stage.advance(60_000)
    assert sorted(await drain(pool)) == sorted(f"other{i}" for i in range(30))


async def test_one_group_of_very_many_comes_whole_and_nothing_with_it(stage: Stage) -> None:
    pool = await stage.pool(capacity=10_000)
    await submit(pool, [*in_group(2500, "deep"), *in_groups(3, "other")])
    pages = [[broker_id for broker_id, _ in page] async for page in pool.recall("q", 100)]
    assert pages == [[f"deep{i}" for i in range(2500)], ["other0", "other1", "other2"]]


async def test_groups_that_change_places_meanwhile_are_met_in_the_next_round(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(6))
    pages = pool.recall("q", 2)
    assert len(await anext(pages)) == 2
    # A lease that is given back goes to the front: the last of the list is not reached in this round.
    claimed = await claim_one(pool)
    await settle(pool, Settlement(claimed.lane, claimed.epoch, [], "ready"))
    await submit(pool, in_groups(2, "late", queue="other"), queue="other")
    assert sum([len(page) async for page in pages]) == 4
