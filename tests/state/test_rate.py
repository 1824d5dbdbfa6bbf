"""Never more than N deliveries in any rolling 60 s, and hardly fewer."""

from __future__ import annotations

from fleet.state.by_hand import NO_RATE, PoolByHand
from fleet.state.entry import ACK, outbox_item
from fleet.state.keys import CHANGED_CHANNEL
from fleet.state.pool import Pool, Settlement
from tests.state.stage import (
    TTL_MS,
    Stage,
    claim,
    claim_one,
    hearing,
    in_group,
    in_groups,
    pause,
    pool_settings,
    settle,
    settlement,
    submit,
)

MINUTE_MS = 60_000


async def test_all_permits_may_be_used_at_once(stage: Stage) -> None:
    pool = await stage.pool(concurrency=50, rate_limit_per_minute=20)
    await submit(pool, in_groups(40))
    assert len(await claim(pool, 50)) == 20
    assert await claim(pool, 50) == []


async def test_no_rolling_minute_sees_more_than_the_limit_and_a_backlog_uses_it_up(stage: Stage) -> None:
    limit, minutes = 30, 10
    pool = await stage.pool(concurrency=7, capacity=1000, rate_limit_per_minute=limit)
    await submit(pool, in_groups(minutes * limit + limit))
    began = stage.now_ms
    granted: list[int] = []
    while stage.now_ms < began + minutes * MINUTE_MS:
        answer = await pool.exchange("w", ttl_ms=TTL_MS, want=5)
        granted += [stage.now_ms] * len(answer.claims)
        if answer.claims:
            await settle(pool, *(settlement(c) for c in answer.claims))
        stage.advance(137 if answer.due_ms is None else answer.due_ms)
    for at in granted:
        assert sum(at <= other < at + MINUTE_MS for other in granted) <= limit
    assert len(granted) >= 0.98 * limit * minutes


async def waits(pool: Pool, want: int) -> int:
    """Claim and settle at once, so that no lease lapses; how many groups wait now that did not before."""
    answer = await pool.exchange("w", ttl_ms=TTL_MS, want=want)
    after = await settle(pool, *(settlement(claimed) for claimed in answer.claims))
    return answer.rate_waits + after.rate_waits


async def test_a_wait_for_a_permit_is_counted_once(stage: Stage) -> None:
    pool = await stage.pool(rate_limit_per_minute=2)
    await submit(pool, in_groups(5))
    assert await waits(pool, 1) == 0
    assert await waits(pool, 5) == 3, "the last permit went, and three groups are left without one"
    assert await waits(pool, 5) == 0
    await submit(pool, in_groups(2, "late"))
    assert await waits(pool, 5) == 2
    stage.advance(MINUTE_MS + 1000)
    assert await waits(pool, 5) == 0, "two of those that waited went, the others wait still"
    await submit(pool, in_groups(1, "last"))
    assert await waits(pool, 5) == 1


async def test_who_waits_for_a_slot_does_not_wait_for_a_permit(stage: Stage) -> None:
    pool = await stage.pool(concurrency=1, rate_limit_per_minute=1)
    await submit(pool, in_groups(2))
    first = await pool.exchange("w", ttl_ms=TTL_MS, want=5)
    assert (len(first.claims), first.rate_waits) == (1, 0)
    assert (await pool.exchange("w", ttl_ms=TTL_MS, want=5)).rate_waits == 0


async def test_when_the_rate_is_lifted_nobody_waits_for_it_any_more(stage: Stage) -> None:
    pool = await stage.pool(rate_limit_per_minute=1)
    await submit(pool, in_groups(4))
    assert await waits(pool, 5) == 3
    await pool.configure("2", pool_settings())
    assert await waits(pool, 5) == 0
    await pool.configure("3", pool_settings(rate_limit_per_minute=1))
    await submit(pool, in_groups(2, "new"))
    assert await waits(pool, 5) == 2


async def test_asking_again_when_told_so_grants_and_earlier_does_not(stage: Stage) -> None:
    pool = await stage.pool(rate_limit_per_minute=2)
    await submit(pool, in_groups(10))
    for _ in range(2):
        (claimed,) = await claim(pool, 1)
        await settle(pool, settlement(claimed))
        stage.advance(10_000)
    due_ms = (await pool.exchange("w", ttl_ms=TTL_MS, want=1)).due_ms
    assert due_ms is not None
    stage.advance(due_ms - 1)
    assert await claim(pool) == []
    stage.advance(1)
    assert len(await claim(pool, 2)) == 1


async def test_who_asks_again_whenever_told_gets_the_next_permits_in_time(stage: Stage) -> None:
    pool = await stage.pool(rate_limit_per_minute=2)
    await submit(pool, in_groups(10))
    began = stage.now_ms
    answer = await pool.exchange("w", ttl_ms=TTL_MS, want=5)
    assert len(answer.claims) == 2
    await settle(pool, *(settlement(c) for c in answer.claims))
    while stage.now_ms == began or not answer.claims:
        assert answer.due_ms is not None
        stage.advance(answer.due_ms)
        answer = await pool.exchange("w", ttl_ms=TTL_MS, want=5)
    assert len(answer.claims) == 2
    assert MINUTE_MS <= stage.now_ms - began <= MINUTE_MS + 1000


async def test_a_raised_rate_applies_at_once(stage: Stage) -> None:
    pool = await stage.pool(concurrency=50, rate_limit_per_minute=2)
    await submit(pool, in_groups(20))
    await claim(pool, 9)
    await pool.configure("2", pool_settings(concurrency=50, rate_limit_per_minute=5))
    assert len(await claim(pool, 9)) == 3


async def test_a_lifted_rate_applies_at_once(stage: Stage) -> None:
    pool = await stage.pool(concurrency=50, rate_limit_per_minute=2)
    await submit(pool, in_groups(20))
    await claim(pool, 9)
    await pool.configure("2", pool_settings(concurrency=50))
    assert len(await claim(pool, 9)) == 9


async def test_a_lowered_rate_applies_at_once_and_says_when_it_lets_one_go(stage: Stage) -> None:
    pool = await stage.pool(concurrency=50, rate_limit_per_minute=5)
    await submit(pool, in_groups(30))
    for _ in range(5):
        await settle(pool, *(settlement(c) for c in await claim(pool)))
        stage.advance(1000)
    await pool.configure("2", pool_settings(concurrency=50, rate_limit_per_minute=2))
    lowered_ms = stage.now_ms
    while not (answer := await pool.exchange("w", ttl_ms=TTL_MS, want=9)).claims:
        assert answer.due_ms is not None
        stage.advance(answer.due_ms)
    assert (len(answer.claims), stage.now_ms - lowered_ms) == (1, 59_000), "when the fourth of the five is over"


async def test_a_permit_is_spent_per_delivery_also_by_one_that_was_handed_back(stage: Stage) -> None:
    pool = await stage.pool(rate_limit_per_minute=2)
    await submit(pool, in_groups(1))
    for _ in range(2):
        (claimed,) = await claim(pool)
        await settle(pool, settlement(claimed, count=0))
    assert await claim(pool) == []


async def test_groups_that_wait_for_a_permit_hold_no_slot(stage: Stage) -> None:
    pool = await stage.pool(concurrency=5, rate_limit_per_minute=1)
    await submit(pool, in_groups(4))
    await claim(pool, 5)
    assert await claim(pool, 5) == []
    assert await stage.client.zcard(pool.keys.leases) == 1


async def test_the_window_of_permits_is_no_longer_than_the_limit(stage: Stage) -> None:
    pool = await stage.pool(concurrency=50, rate_limit_per_minute=3)
    await submit(pool, in_groups(30))
    for _ in range(5):
        await settle(pool, *(settlement(c) for c in await claim(pool, 9)))
        stage.advance(61_000)
    assert await stage.client.llen(pool.keys.rate) == 3
    assert 0 < await stage.client.pttl(pool.keys.rate) <= 61_000


async def test_what_is_under_way_when_a_rate_is_set_takes_permits(stage: Stage) -> None:
    pool = await stage.pool(concurrency=50)
    await submit(pool, in_groups(10))
    assert len(await claim(pool, 3)) == 3
    await pool.configure("2", pool_settings(concurrency=50, rate_limit_per_minute=5))
    assert len(await claim(pool, 10)) == 2
    await PoolByHand(stage.client, "P", now_ms=str(stage.now_ms)).adjust(rate=NO_RATE)
    assert len(await claim(pool, 1)) == 1
    await PoolByHand(stage.client, "P", now_ms=str(stage.now_ms)).adjust(rate=7)
    assert await claim(pool, 10) == [], "two permits were taken before, and six leases are held"


async def test_what_a_holder_that_heard_late_began_meanwhile_takes_a_permit_as_it_is_settled(stage: Stage) -> None:
    pool = await stage.pool(concurrency=50)
    await submit(pool, in_group(4))
    claimed = await claim_one(pool, chunk=3)
    await pool.configure("2", pool_settings(concurrency=50, rate_limit_per_minute=5))
    permits = [stage.now_ms]
    assert await permits_of(stage, pool) == permits
    stage.advance(4_000)
    await settle(pool, settlement(claimed, count=1, release="keep"))
    permits = [stage.now_ms] * 2 + permits
    assert await permits_of(stage, pool) == permits, "one, and the next that it may have begun"
    await settle(pool, Settlement("g", claimed.epoch, [outbox_item(claimed.entries[1], ACK)], "ready"))
    permits = [stage.now_ms, *permits]
    assert await permits_of(stage, pool) == permits
    (again,) = await claim(pool, 5)
    await settle(pool, settlement(again))
    assert len(await permits_of(stage, pool)) == 5, "claimed with one"


async def permits_of(stage: Stage, pool: Pool) -> list[int]:
    return [int(given) for given in await stage.client.lrange(pool.keys.rate, 0, -1)]


async def test_who_holds_leases_is_told_of_a_new_rate_and_learns_it_with_the_next_call(stage: Stage) -> None:
    pool = await stage.pool()
    async with hearing(stage, CHANGED_CHANNEL) as heard:
        await pool.configure("2", pool_settings(rate_limit_per_minute=5))
        assert await heard.since(pool.keys.settings) == [], "nobody delivers there"
        await submit(pool, in_groups(2))
        await claim(pool, 1)
        await pool.configure("3", pool_settings(rate_limit_per_minute=6))
        await pause(pool)
        assert await heard.since(pool.keys.settings) == ["pool P", "pool P"]
    await pause(pool, paused=False)
    assert (await pool.exchange("w", ttl_ms=TTL_MS)).policy.rated
    await pool.configure("4", pool_settings())
    assert not (await pool.exchange("w", ttl_ms=TTL_MS)).policy.rated
