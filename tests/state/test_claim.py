from __future__ import annotations

import random

from fleet.state.entry import ACK, outbox_item
from fleet.state.pool import Claim, Settlement
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
    pause,
    pool_settings,
    settle,
    settlement,
    submit,
)


async def test_a_group_is_leased_once_whoever_asks(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(5))
    assert len(await claim(pool, 5, worker="w1")) == 1
    assert await claim(pool, 5, worker="w2") == []


async def test_a_group_is_delivered_in_the_order_of_its_submits(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(3, "a"))
    await submit(pool, in_group(3, "b"))
    assert [i for i in await drain(pool) if i[0] == "a"] == ["a0", "a1", "a2"]


async def test_groups_take_turns(stage: Stage) -> None:
    pool = await stage.pool(concurrency=1)
    await submit(pool, in_group(3, "a") + in_group(3, "b") + in_group(3, "c"))
    assert await drain(pool) == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]


async def test_a_lease_brings_several_messages_of_its_group_in_order(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(5))
    assert broker_ids(await claim_one(pool, chunk=3)) == ["g0", "g1", "g2"]


async def test_a_pool_with_a_rate_gives_one_message_a_lease(stage: Stage) -> None:
    pool = await stage.pool(rate_limit_per_minute=10)
    await submit(pool, in_group(5))
    assert broker_ids(await claim_one(pool, chunk=3)) == ["g0"]


async def test_high_priority_comes_before_regular_at_the_next_claim(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(3))
    first = await claim_one(pool, chunk=1)
    await submit(pool, [entry("h1", high=True), entry("h2", high=True)])
    await settle(pool, settlement(first))
    assert await drain(pool) == ["h1", "h2", "g1", "g2"]


async def test_high_priority_does_not_touch_the_line_of_groups(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(3))
    await submit(pool, [entry("h", "g2", high=True)])
    claims = await claim(pool, 3)
    assert [broker_ids(c) for c in claims] == [["g0"], ["g1"], ["h"]]


async def test_a_lease_of_high_priority_messages_holds_no_regular_ones(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [entry("r"), entry("h1", high=True), entry("h2", high=True)])
    claimed = await claim_one(pool, chunk=5)
    assert broker_ids(claimed) == ["h1", "h2"]
    assert all(e.high_priority for e in claimed.entries)


async def test_a_kept_lease_yields_when_its_group_has_a_high_priority_message(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(3, "a") + in_group(3, "b"))
    a, b = await claim(pool, 2, chunk=3)
    await submit(pool, [entry("h", "b", high=True)])
    answer = await settle(pool, settlement(a, count=1, release="keep"), settlement(b, count=1, release="keep"))
    assert answer.yields == {1}
    b.entries = b.entries[1:]
    back = await settle(pool, settlement(b, count=0))
    assert back.yields == set()
    assert broker_ids(await claim_one(pool)) == ["h"]


async def test_a_lease_of_high_priority_messages_never_yields(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, [entry("h1", high=True), entry("h2", high=True)])
    claimed = await claim_one(pool)
    assert (await settle(pool, settlement(claimed, release="keep"))).yields == set()


async def test_concurrency_is_a_hard_limit_over_all_workers(stage: Stage) -> None:
    pool = await stage.pool(concurrency=3)
    await submit(pool, in_groups(10))
    assert len(await claim(pool, 2, worker="w1")) == 2
    assert len(await claim(pool, 5, worker="w2")) == 1
    assert await claim(pool, 5, worker="w3") == []


async def test_a_lowered_limit_lets_running_ones_finish_and_starts_none_above_it(stage: Stage) -> None:
    pool = await stage.pool(concurrency=4)
    await submit(pool, in_groups(10))
    running = await claim(pool, 4)
    await pool.configure("2", pool_settings(concurrency=2))
    for i, claimed in enumerate(running):
        answer = await settle(pool, settlement(claimed), want=4)
        assert answer.refused == set()
        assert len(answer.claims) == (0 if i < 2 else 1)


async def test_a_raised_limit_applies_to_the_next_claim(stage: Stage) -> None:
    pool = await stage.pool(concurrency=1)
    await submit(pool, in_groups(10))
    await claim(pool, 5)
    await pool.configure("2", pool_settings(concurrency=4))
    assert len(await claim(pool, 5)) == 3


async def test_concurrency_is_never_exceeded_under_any_interleaving(stage: Stage) -> None:
    chance = random.Random(7)
    pool = await stage.pool(concurrency=4)
    limit, sent = 4, 0
    running: list[Claim] = []
    for revision in range(2, 150):
        match chance.choice(["submit", "claim", "claim", "settle", "later", "lapse", "configure"]):
            case "submit":
                await submit(pool, in_groups(5, f"s{sent}-"))
                sent += 1
            case "claim":
                before = len(running)
                running += await claim(pool, chance.randint(1, 5), worker=chance.choice("xyz"))
                assert len(running) <= max(limit, before)
            case "settle" if running:
                await settle(pool, settlement(running.pop(chance.randrange(len(running)))))
            case "later" if running:
                claimed = running.pop(chance.randrange(len(running)))
                await settle(pool, settlement(claimed, count=0, release="100"))
            case "lapse":
                stage.advance(TTL_MS + 1)
                running = []
            case "configure":
                limit = chance.randint(1, 6)
                await pool.configure(str(revision), pool_settings(concurrency=limit))
        assert await stage.client.zcard(pool.keys.leases) <= 6


async def test_epochs_rise_from_grant_to_grant(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(6))
    epochs = []
    for _ in range(3):
        epochs += [c.epoch for c in await claim(pool, 2)]
    assert [int(e) for e in epochs] == sorted({int(e) for e in epochs})
    assert int(epochs[0]) == stage.now_ms * 1000


async def test_epochs_rise_after_redis_was_wiped(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    before = await claim_one(pool)
    await stage.client.flushall()
    stage.advance(1)
    pool = await stage.pool()
    await submit(pool, in_group(1))
    assert int((await claim_one(pool)).epoch) > int(before.epoch)


async def test_epochs_rise_when_the_clock_steps_back(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(2))
    before = await claim_one(pool)
    stage.advance(-5000)
    assert int((await claim_one(pool)).epoch) > int(before.epoch)


async def test_a_claim_without_work_says_when_a_lease_falls_due(stage: Stage) -> None:
    pool = await stage.pool()
    assert (await pool.exchange("w", ttl_ms=TTL_MS, want=1)).due_ms is None
    await submit(pool, in_group(1))
    await claim_one(pool, worker="dead")
    due_ms = (await pool.exchange("w", ttl_ms=TTL_MS, want=1)).due_ms
    assert due_ms is not None
    stage.advance(due_ms)
    assert groups(await claim(pool)) == ["g"]


async def test_only_who_looks_first_is_told_a_time(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(3))
    assert (await pool.exchange("w", ttl_ms=TTL_MS, want=1, place=1)).due_ms is None
    assert (await pool.exchange("w", ttl_ms=TTL_MS, want=1, place=0)).due_ms == TTL_MS


async def test_an_unknown_pool_says_so(stage: Stage) -> None:
    answer = await stage.unknown_pool().exchange("w", ttl_ms=TTL_MS, want=1)
    assert (answer.tag, answer.claims, answer.due_ms) == ("unknown", [], None)


async def test_a_paused_pool_gives_nothing_and_goes_on_where_it_was(stage: Stage) -> None:
    pool = await stage.pool(concurrency=1)
    await submit(pool, in_group(3))
    running = await claim_one(pool)
    assert await pause(pool)
    answer = await settle(pool, settlement(running), want=1)
    assert (answer.tag, answer.refused, answer.claims) == ("paused", set(), [])
    assert await outboxed(pool) != []
    assert await pause(pool, paused=False)
    assert await drain(pool) == ["g1", "g2"]


async def test_an_unknown_pool_cannot_be_paused(stage: Stage) -> None:
    assert not await pause(stage.unknown_pool())
    assert await stage.keys() == set()


async def test_leases_above_a_lowered_limit_are_asked_to_end(stage: Stage) -> None:
    pool = await stage.pool(concurrency=3)
    await submit(pool, [message for group in "abc" for message in in_group(3, group)])
    claims = await claim(pool, 3, chunk=3)
    await pool.configure("2", pool_settings(concurrency=1))
    going_on = [settlement(claimed, count=1, release="keep") for claimed in claims]
    assert len((await settle(pool, *going_on)).yields) == 2
    await pool.configure("3", pool_settings(concurrency=3))
    again = [Settlement(claimed.lane, claimed.epoch, [outbox_item(claimed.entries[1], ACK)]) for claimed in claims]
    assert (await settle(pool, *again)).yields == set()
