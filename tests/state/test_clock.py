"""Redis's clock steps back by an hour: nothing waits for that hour, and no limit is passed."""

from __future__ import annotations

from dataclasses import replace

from fleet.clock import SystemClock
from fleet.lease import Lease
from fleet.outcome import QUEUE_FULL_RETRY_S
from fleet.state.breakers import SharedBreakers
from fleet.state.by_hand import PoolByHand
from fleet.state.entry import Entry
from fleet.state.keys import FleetKeys
from fleet.state.pool import Settlement, in_place
from fleet.state.registry import Registry
from tests.state.stage import (
    NOON_MS,
    OWNER_EPOCH,
    TTL_MS,
    Stage,
    broker_ids,
    claim,
    claim_one,
    drain,
    entry,
    in_group,
    in_groups,
    pool_settings,
    settle,
    settlement,
    submit,
)

HOUR_MS = 3_600_000
FULL_MS = QUEUE_FULL_RETRY_S * 1000
WINDOW_MS = 61_000


def without_groups(*numbers: int) -> list[Entry]:
    """Of one group, from a source that holds none."""
    return [replace(entry(f"g{n}", "g"), source_holds_groups=False) for n in numbers]


async def test_a_rate_limited_pool_waits_for_what_is_left_of_its_minute_and_grants_no_more(stage: Stage) -> None:
    pool = await stage.pool(rate_limit_per_minute=2, concurrency=50)
    await submit(pool, in_groups(5))
    assert len(await claim(pool, 2)) == 2
    stage.advance(20_000)
    assert await claim(pool, 5) == []
    stage.advance(-HOUR_MS)
    answer = await pool.exchange("w", ttl_ms=TTL_MS, want=5)
    assert answer.claims == []
    assert answer.due_ms is not None
    assert answer.due_ms <= WINDOW_MS - 20_000
    stage.advance(WINDOW_MS - 20_001)
    assert await claim(pool, 5) == []
    stage.advance(1)
    assert len(await claim(pool, 5)) == 2


async def test_the_lease_of_a_dead_worker_lapses_in_its_time(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    await claim_one(pool, worker="dead")
    stage.advance(-HOUR_MS)
    assert await claim(pool, worker="alive") == []
    stage.advance(TTL_MS)
    assert broker_ids(await claim_one(pool, worker="alive")) == ["g0"]


async def test_a_lease_that_is_held_can_be_renewed_and_settled(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    claimed = await claim_one(pool)
    stage.advance(-HOUR_MS)
    assert await pool.renew("w", [(claimed.lane, claimed.epoch)], ttl_ms=TTL_MS) == []
    assert (await settle(pool, settlement(claimed))).refused == set()


async def test_a_lease_that_is_renewed_before_the_next_call_of_a_worker_is_held_on(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    claimed = await claim_one(pool, worker="holder")
    stage.advance(-HOUR_MS)
    assert await pool.renew("holder", [(claimed.lane, claimed.epoch)], ttl_ms=TTL_MS) == []
    assert await claim(pool, worker="other") == []
    stage.advance(TTL_MS - 1)
    assert await claim(pool, worker="other") == []
    stage.advance(1)
    assert broker_ids(await claim_one(pool, worker="other")) == ["g0"]


async def test_a_lease_that_was_renewed_since_the_last_call_of_a_worker_lapses_in_its_time(stage: Stage) -> None:
    """That call noted a time; the renewal went by a later one."""
    pool = await stage.pool()
    await submit(pool, in_group(1))
    claimed = await claim_one(pool, worker="dead")
    stage.advance(TTL_MS - 1)
    assert await pool.renew("dead", [(claimed.lane, claimed.epoch)], ttl_ms=TTL_MS) == []
    stage.advance(-HOUR_MS)
    assert await claim(pool, worker="alive") == []
    stage.advance(TTL_MS)
    assert broker_ids(await claim_one(pool, worker="alive")) == ["g0"]


async def test_what_goes_back_after_a_step_forward_that_no_worker_saw_waits_for_no_hour(stage: Stage) -> None:
    """Seed 2030551: a pool that was paused, full, and whose Redis went an hour ahead and back."""
    pool = await stage.pool(capacity=2, on_failure="hold")
    await submit(pool, without_groups(0, 1))
    await claim_one(pool)
    stage.advance(HOUR_MS)
    assert (await pool.submit("q", OWNER_EPOCH, without_groups(2, 3))).accepted == 0
    stage.advance(-HOUR_MS)
    await drain(pool)
    (wait_ms,) = (await pool.submit("q", OWNER_EPOCH, without_groups(4))).behind.values()
    assert wait_ms <= FULL_MS


async def test_a_rate_that_is_set_before_the_next_call_of_a_worker_counts_what_is_under_way(stage: Stage) -> None:
    pool = await stage.pool(concurrency=50)
    await submit(pool, in_groups(5))
    assert len(await claim(pool, 2)) == 2
    stage.advance(-HOUR_MS)
    await pool.configure("2", pool_settings(concurrency=50, rate_limit_per_minute=2))
    assert await claim(pool, 5) == []
    stage.advance(WINDOW_MS)
    assert len(await claim(pool, 5)) == 2


async def test_what_waits_in_place_waits_no_longer_than_its_delay(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    claimed = await claim_one(pool)
    await settle(pool, Settlement("g", claimed.epoch, [], in_place(5_000)))
    stage.advance(-HOUR_MS)
    assert await claim(pool) == []
    stage.advance(5_000)
    assert await drain(pool) == ["g0", "g1"]


async def test_a_step_before_the_next_call_of_a_worker_is_seen_by_who_submits(stage: Stage) -> None:
    pool = await stage.pool(capacity=4)
    await submit(pool, in_group(1))
    claimed = await claim_one(pool)
    await settle(pool, Settlement("g", claimed.epoch, [], in_place(5_000)))
    stage.advance(-HOUR_MS)
    answer = await pool.submit("q", OWNER_EPOCH, in_group(2))
    assert answer.behind == {1: 5_000}


async def test_who_may_not_skip_is_told_when_by_the_clock_there_is_now(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    (head,) = (await claim_one(pool)).entries
    stage.advance(-HOUR_MS)
    done = await PoolByHand(stage.client, "P", now_ms=str(stage.now_ms)).skip(head, "{}")
    assert (done.tag, done.until_ms) == ("leased", stage.now_ms + TTL_MS)


async def test_a_lease_that_had_lapsed_before_the_step_keeps_nobody_from_skipping(stage: Stage) -> None:
    pool = await stage.pool(concurrency=101)
    await submit(pool, in_groups(101))
    heads = {claimed.lane: claimed.entries[0] for claimed in await claim(pool, 101, worker="dead")}
    stage.advance(TTL_MS)
    await pool.exchange("w", ttl_ms=TTL_MS)
    ((left, _),) = await stage.client.zrange(pool.keys.leases, 0, -1, withscores=True)  # it looks at a hundred a call
    stage.advance(-HOUR_MS)
    done = await PoolByHand(stage.client, "P", now_ms=str(stage.now_ms)).skip(heads[left], "{}")
    assert done.tag == "skipped"


async def test_epochs_rise_all_the_same(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(2))
    before = await claim_one(pool)
    stage.advance(-HOUR_MS)
    assert int((await claim_one(pool)).epoch) > int(before.epoch)


async def test_a_dead_owner_of_a_queue_is_followed_within_its_lease(stage: Stage) -> None:
    def lease(owner: str, now_ms: int, ttl_ms: int) -> Lease:
        return Lease(
            client=stage.client,
            key=FleetKeys.leader,
            owner=owner,
            ttl_ms=ttl_ms,
            clock=SystemClock(),
            now_ms=str(now_ms),
        )

    assert await lease("dead", NOON_MS, 2 * TTL_MS).acquire()
    stepped = NOON_MS - HOUR_MS
    assert not await lease("heir", stepped, TTL_MS).acquire()
    assert not await lease("heir", stepped + 2 * TTL_MS - 1, TTL_MS).acquire(), "it has what it was granted for"
    assert await lease("heir", stepped + 2 * TTL_MS, TTL_MS).acquire()


async def test_a_dead_process_is_not_taken_for_a_living_one(stage: Stage) -> None:
    await Registry(stage.client, now_ms=str(NOON_MS)).beat("dead", {}, ttl_ms=TTL_MS)
    stepped = NOON_MS - HOUR_MS
    await Registry(stage.client, now_ms=str(stepped)).beat("alive", {}, ttl_ms=TTL_MS)
    later = Registry(stage.client, now_ms=str(stepped + TTL_MS))
    assert await later.beat("alive", {}, ttl_ms=TTL_MS) == {"alive"}


async def test_an_open_breaker_is_probed_after_its_time(stage: Stage) -> None:
    await SharedBreakers(stage.client, now_ms=str(NOON_MS)).open("http://a", "w", for_ms=5_000)
    stepped = NOON_MS - HOUR_MS
    found = await SharedBreakers(stage.client, now_ms=str(stepped)).ask("http://a", "w")
    assert (found.tag, found.left_ms) == ("open", 5_000)
    asked = await SharedBreakers(stage.client, now_ms=str(stepped + 5_000)).ask("http://a", "w")
    assert asked.tag == "granted"


async def test_who_reads_all_breakers_is_told_of_none_that_is_open_for_longer_than_it_can_be(stage: Stage) -> None:
    await SharedBreakers(stage.client, now_ms=str(NOON_MS)).open("http://a", "w", for_ms=5_000)
    _, (view,) = await SharedBreakers(stage.client, now_ms=str(NOON_MS - HOUR_MS)).all()
    assert (view.state, view.retry_after_ms) == ("open", 5_000)


async def test_a_clock_that_is_slewed_by_less_than_a_second_changes_nothing(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    await claim_one(pool, worker="dead")
    stage.advance(-999)
    assert await claim(pool) == []
    stage.advance(999 + TTL_MS)
    assert broker_ids(await claim_one(pool)) == ["g0"]
