"""What a script publishes: enough that nobody idle misses work, and nothing for nobody."""

from __future__ import annotations

import pytest

from fleet.clock import SystemClock
from fleet.lease import Lease
from fleet.state.keys import CHANGED_CHANNEL, POOL_WAKE_CHANNEL, SETTLED_CHANNEL, WAKE_CHANNEL, FleetKeys
from tests.state.stage import (
    TTL_MS,
    Stage,
    claim,
    claim_one,
    entry,
    hearing,
    in_groups,
    pause,
    pool_settings,
    settle,
    settlement,
    submit,
)

WORK = "+1"
"""What the homes of a pool hear when one lane is ready."""


async def test_a_submit_wakes_when_a_group_becomes_ready(stage: Stage) -> None:
    pool = await stage.pool("POOL}-{HIGH")
    async with hearing(stage, POOL_WAKE_CHANNEL + "POOL}-{HIGH") as heard:
        await submit(pool, in_groups(3))
        assert await heard.since(pool.keys.settings) == ["+3"]


async def test_a_submit_to_a_group_in_line_or_leased_wakes_nobody(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(2))
    await claim_one(pool)
    async with hearing(stage, POOL_WAKE_CHANNEL + "P") as heard:
        await submit(pool, [entry("more", "g0"), entry("even more", "g1"), entry("urgent", "g1", high=True)])
        await submit(pool, in_groups(2))
        assert await heard.since(pool.keys.settings) == []


async def test_a_submit_wakes_nobody_while_no_slot_is_free(stage: Stage) -> None:
    pool = await stage.pool(concurrency=1)
    await submit(pool, in_groups(1))
    await claim_one(pool)
    async with hearing(stage, POOL_WAKE_CHANNEL + "P") as heard:
        await submit(pool, in_groups(1, "other"))
        assert await heard.since(pool.keys.settings) == []


async def test_a_submit_to_a_paused_pool_wakes_nobody(stage: Stage) -> None:
    pool = await stage.pool()
    await pause(pool)
    async with hearing(stage, POOL_WAKE_CHANNEL + "P") as heard:
        await submit(pool, in_groups(1))
        assert await heard.since(pool.keys.settings) == []


@pytest.mark.parametrize(("place", "asked"), [(0, (1, 2)), (1, (2, 4)), (2, (4, 8)), (5, (10, 20))])
async def test_a_settle_that_leaves_work_asks_those_that_come_after_in_the_order_of_the_pool(
    stage: Stage, place: int, asked: tuple[int, int]
) -> None:
    pool = await stage.pool(concurrency=1)
    await submit(pool, in_groups(2))
    done = settlement(await claim_one(pool))
    async with hearing(stage, WAKE_CHANNEL) as heard:
        await settle(pool, done, place=place)
        assert await heard.since(pool.keys.settings) == [f"P\x1f{asked[0]}\x1f{asked[1]}"]


async def test_who_is_not_the_first_home_and_leaves_work_tells_that_one_too(stage: Stage) -> None:
    pool = await stage.pool(concurrency=1)
    await submit(pool, in_groups(2))
    done = settlement(await claim_one(pool))
    async with hearing(stage, POOL_WAKE_CHANNEL + "P") as heard:
        await settle(pool, done, place=1)
        assert await heard.since(pool.keys.settings) == [WORK]


async def test_more_workers_are_asked_the_more_is_ready(stage: Stage) -> None:
    pool = await stage.pool(concurrency=1000, capacity=1000)
    async with hearing(stage, WAKE_CHANNEL) as heard:
        await submit(pool, in_groups(128))
        assert await heard.since(pool.keys.settings) == [], "what its homes take with a call each"
        await submit(pool, in_groups(1, "more"))
        await submit(pool, in_groups(500, "many"))
        assert await heard.since(pool.keys.settings) == ["P\x1f2\x1f4", "P\x1f2\x1f10"]


async def test_what_falls_due_is_told_to_who_looks_first_and_not_again(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(5))
    async with hearing(stage, POOL_WAKE_CHANNEL + "P") as heard:
        first = (await pool.exchange("other", ttl_ms=TTL_MS, want=1, place=1, quiet=True)).claims[0]
        assert await heard.since(pool.keys.settings) == [str(TTL_MS)]
        await pool.exchange("other", ttl_ms=TTL_MS, want=1, place=1, quiet=True)
        assert await heard.since(pool.keys.settings) == [], "somebody looks before that lapses"
        await settle(pool, settlement(first, count=0, release="500"), worker="other", place=1, quiet=True)
        assert await heard.since(pool.keys.settings) == ["500"]
        stage.advance(501)
        await pool.exchange("other", ttl_ms=TTL_MS, want=1, place=1, quiet=True)
        assert await heard.since(pool.keys.settings) == [str(TTL_MS)], "a look that is overdue promises nothing"


async def test_who_looks_first_says_when_and_stands_by_that(stage: Stage) -> None:
    pool = await stage.pool()
    assert (await pool.exchange("w", ttl_ms=TTL_MS, want=1)).due_ms is None
    await submit(pool, in_groups(2))
    answer = await pool.exchange("w", ttl_ms=TTL_MS, want=1)
    assert answer.due_ms == TTL_MS
    stage.advance(TTL_MS // 2)
    await pool.renew("w", [(answer.claims[0].lane, answer.claims[0].epoch)], ttl_ms=TTL_MS)
    assert (await pool.exchange("w", ttl_ms=TTL_MS)).due_ms == TTL_MS // 2, "leases are renewed all the time"
    stage.advance(TTL_MS // 2)
    assert (await pool.exchange("w", ttl_ms=TTL_MS)).due_ms == TTL_MS // 2 + 1
    assert (await settle(pool, settlement(answer.claims[0]))).due_ms is None, "nothing is left to look at"
    async with hearing(stage, POOL_WAKE_CHANNEL + "P") as heard:
        await pool.exchange("other", ttl_ms=TTL_MS, want=1, place=1)
        assert await heard.since(pool.keys.settings) == [str(TTL_MS)]


async def test_a_quiet_settle_wakes_nobody(stage: Stage) -> None:
    pool = await stage.pool(concurrency=1)
    await submit(pool, in_groups(2))
    done = settlement(await claim_one(pool))
    async with hearing(stage, POOL_WAKE_CHANNEL + "P") as heard:
        await settle(pool, done, quiet=True)
        assert await heard.since(pool.keys.settings) == []


async def test_a_settle_that_leaves_no_work_wakes_nobody(stage: Stage) -> None:
    pool = await stage.pool(concurrency=1)
    await submit(pool, in_groups(1))
    done = settlement(await claim_one(pool))
    async with hearing(stage, POOL_WAKE_CHANNEL + "P") as heard:
        await settle(pool, done)
        assert await heard.since(pool.keys.settings) == []


async def test_a_settle_that_claims_all_that_may_go_wakes_nobody(stage: Stage) -> None:
    pool = await stage.pool(concurrency=1)
    await submit(pool, in_groups(3))
    done = settlement(await claim_one(pool))
    async with hearing(stage, POOL_WAKE_CHANNEL + "P") as heard:
        await settle(pool, done, want=1)
        assert await heard.since(pool.keys.settings) == []


async def test_a_claim_that_leaves_work_wakes_the_next(stage: Stage) -> None:
    pool = await stage.pool(concurrency=3)
    async with hearing(stage, WAKE_CHANNEL) as heard:
        await submit(pool, in_groups(5))
        await claim(pool, 1)
        assert await heard.since(pool.keys.settings) == ["P\x1f1\x1f2"]
        await claim(pool, 2)
        assert await heard.since(pool.keys.settings) == []


async def test_a_claim_that_leaves_work_but_no_permit_wakes_nobody(stage: Stage) -> None:
    pool = await stage.pool(rate_limit_per_minute=2)
    await submit(pool, in_groups(5))
    async with hearing(stage, POOL_WAKE_CHANNEL + "P") as heard:
        await claim(pool, 2)
        await pool.exchange("w", ttl_ms=TTL_MS, want=0)
        assert await heard.since(pool.keys.settings) == []


async def test_a_raised_limit_and_a_lifted_rate_wake_those_who_wait(stage: Stage) -> None:
    pool = await stage.pool(concurrency=1)
    await submit(pool, in_groups(3))
    await claim_one(pool)
    async with hearing(stage, POOL_WAKE_CHANNEL + "P") as heard:
        await pool.configure("2", pool_settings(concurrency=1))
        assert await heard.since(pool.keys.settings) == []
        await pool.configure("3", pool_settings(concurrency=2))
        assert await heard.since(pool.keys.settings) == ["+2"]


async def test_configuring_a_pool_without_work_wakes_nobody(stage: Stage) -> None:
    async with hearing(stage, POOL_WAKE_CHANNEL + "P") as heard:
        pool = await stage.pool()
        assert await heard.since(pool.keys.settings) == []


async def test_resuming_wakes_and_pausing_does_not(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(1))
    async with hearing(stage, POOL_WAKE_CHANNEL + "P") as heard:
        await pause(pool)
        assert await heard.since(pool.keys.settings) == []
        await pause(pool, paused=False)
        assert await heard.since(pool.keys.settings) == [WORK]


async def test_a_lease_given_back_is_told_to_those_who_want_it(stage: Stage) -> None:
    lease = Lease(client=stage.client, key=FleetKeys.leader, owner="a", ttl_ms=TTL_MS, clock=SystemClock())
    async with hearing(stage, CHANGED_CHANNEL) as heard:
        await lease.acquire()
        await lease.renew()
        assert await heard.since(FleetKeys.leader) == []
        await lease.release()
        assert await heard.since(FleetKeys.leader) == ["lease"]


async def test_a_new_configuration_is_told_when_its_publisher_says_so(stage: Stage) -> None:
    registry = stage.registry()
    async with hearing(stage, CHANGED_CHANNEL) as heard:
        await registry.publish_config(b"{}")
        assert await heard.since(FleetKeys.config) == []
        await registry.announce_config()
        assert await heard.one() == "config"


@pytest.mark.parametrize("name", ["q", "q{1}%", "sqs://host/queue"])
async def test_the_first_outcome_on_a_settled_list_is_told_and_the_next_is_not(stage: Stage, name: str) -> None:
    queue = await stage.queue(name)
    tracked = await queue.track([(str(i), f"m{i}", "P", "g", "handle") for i in range(3)])
    async with hearing(stage, SETTLED_CHANNEL) as heard:
        await queue.report([("0", tracked[0].token, "a"), ("1", tracked[1].token, "a")])
        assert await heard.since(queue.keys.settled) == [name]
        await queue.report([("2", tracked[2].token, "n1000")])
        assert await heard.since(queue.keys.settled) == []
