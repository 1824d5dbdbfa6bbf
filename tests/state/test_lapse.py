"""A lease that its worker did not renew, or did."""

from __future__ import annotations

from tests.state.stage import (
    TTL_MS,
    Stage,
    broker_ids,
    claim,
    claim_one,
    drain,
    entry,
    groups,
    in_group,
    in_groups,
    outboxed,
    settle,
    settlement,
    submit,
)


async def test_a_lapsed_lease_is_reaped_at_the_next_claim_with_its_messages_in_order(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(3))
    dead = await claim_one(pool, worker="dead", chunk=2)
    stage.advance(TTL_MS - 1)
    assert await claim(pool) == []
    stage.advance(1)
    taken_over = await claim_one(pool, chunk=5)
    assert broker_ids(taken_over) == ["g0", "g1", "g2"]
    assert int(taken_over.epoch) > int(dead.epoch)


async def test_lapsed_groups_come_before_those_that_wait_and_in_their_old_order(stage: Stage) -> None:
    pool = await stage.pool(concurrency=3)
    await submit(pool, in_groups(6))
    await claim(pool, 3, worker="dead")
    stage.advance(TTL_MS)
    assert groups(await claim(pool, 3)) == ["g0", "g1", "g2"]


async def test_a_lapsed_lease_frees_its_slot(stage: Stage) -> None:
    pool = await stage.pool(concurrency=1)
    await submit(pool, in_group(1))
    last = await claim_one(pool, worker="dead")
    await settle(pool, settlement(last, release="keep"), worker="dead")
    await submit(pool, in_groups(1, "other"))
    assert await claim(pool) == []
    stage.advance(TTL_MS)
    assert groups(await claim(pool)) == ["other0"]


async def test_a_worker_that_never_comes_back_has_settled_what_it_settled(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(4))
    dying = await claim_one(pool, worker="dead", chunk=3)
    await settle(pool, settlement(dying, count=2, release="keep"), worker="dead")
    stage.advance(TTL_MS)
    assert await drain(pool) == ["g2", "g3"]
    assert len(await outboxed(pool, "dead")) == 2


async def test_a_high_priority_lease_that_lapsed_comes_back_as_one(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [entry("r"), entry("h", high=True)])
    await claim_one(pool, worker="dead")
    stage.advance(TTL_MS)
    assert await drain(pool) == ["h", "r"]


async def test_more_leases_than_one_sweep_reaps_all_come_back(stage: Stage) -> None:
    pool = await stage.pool(concurrency=250)
    await submit(pool, in_groups(250))
    await claim(pool, 250, worker="dead")
    stage.advance(TTL_MS)
    assert len(await drain(pool)) == 250


async def test_a_renewed_lease_lives_on(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    claimed = await claim_one(pool)
    for _ in range(3):
        stage.advance(TTL_MS - 1)
        assert await pool.renew("w", [(claimed.lane, claimed.epoch)], ttl_ms=TTL_MS) == []
    assert await claim(pool, worker="other") == []
    assert (await settle(pool, settlement(claimed))).refused == set()


async def test_a_lapsed_lease_cannot_be_renewed_even_before_it_is_reaped(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    claimed = await claim_one(pool)
    stage.advance(TTL_MS)
    assert await pool.renew("w", [(claimed.lane, claimed.epoch)], ttl_ms=TTL_MS) == ["g"]
    assert groups(await claim(pool, worker="other")) == ["g"]


async def test_a_lease_is_renewed_only_under_its_epoch(stage: Stage) -> None:
    # A claim whose reply was lost leaves a lease that nobody knows: it must lapse.
    pool = await stage.pool()
    await submit(pool, in_groups(2))
    known, lost = await claim(pool, 2)
    stage.advance(TTL_MS // 2)
    held = [(known.lane, known.epoch), (lost.lane, str(int(lost.epoch) - 7))]
    assert await pool.renew("w", held, ttl_ms=TTL_MS) == [lost.lane]
    stage.advance(TTL_MS // 2)
    assert groups(await claim(pool, 5, worker="other")) == [lost.lane]


async def test_a_lease_is_its_workers_alone_as_epochs_may_be_given_twice(stage: Stage) -> None:
    # Where Redis's clock steps back and a failover then forgets the last epochs: seed 601088.
    pool = await stage.pool()
    await submit(pool, in_group(2))
    claimed = await claim_one(pool, worker="holder")
    assert await pool.renew("other", [(claimed.lane, claimed.epoch)], ttl_ms=TTL_MS) == ["g"]
    answer = await settle(pool, settlement(claimed), worker="other", want=1)
    assert (answer.refused, answer.claims, await outboxed(pool, "other")) == ({0}, [], [])
    assert (await settle(pool, settlement(claimed), worker="holder")).refused == set()


async def test_renewal_lists_every_group_that_is_lost(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(3))
    released, kept, third = await claim(pool, 3)
    await settle(pool, settlement(released))
    held = [(c.lane, c.epoch) for c in (released, kept, third)] + [("never", "1")]
    assert await pool.renew("w", held, ttl_ms=TTL_MS) == ["g0", "never"]


async def test_renewing_nothing_loses_nothing(stage: Stage) -> None:
    pool = await stage.pool()
    assert await pool.renew("w", [], ttl_ms=TTL_MS) == []


async def test_thousands_of_leases_are_renewed_in_one_call(stage: Stage) -> None:
    pool = await stage.pool(concurrency=9_000, capacity=10_000)
    await submit(pool, in_groups(9_000))
    claims = await claim(pool, 9_000)
    stage.advance(TTL_MS - 1)
    assert await pool.renew("w", [(c.lane, c.epoch) for c in claims], ttl_ms=TTL_MS) == []
    stage.advance(TTL_MS - 1)
    assert await claim(pool, 1) == []
