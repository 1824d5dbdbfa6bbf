"""Failures that stay where they are: the group waits for its head, or goes on without it."""

from __future__ import annotations

import json

from fleet.state.by_hand import PoolByHand
from fleet.state.entry import ACK, nack, outbox_item, park, unpack_item
from fleet.state.pool import Settlement, fenced, in_place
from tests.state.stage import (
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
    outboxed,
    pool_settings,
    settle,
    settlement,
    submit,
)


async def test_a_held_head_is_tried_again_after_its_delay_before_all_others(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(3))
    claimed = await claim_one(pool, chunk=3)
    await settle(pool, Settlement("g", claimed.epoch, [], in_place(5_000)))
    assert await claim(pool, 10) == []
    stage.advance(4_999)
    assert await claim(pool, 10) == []
    stage.advance(1)
    assert await drain(pool) == ["g0", "g1", "g2"]


async def test_a_held_group_frees_its_slot(stage: Stage) -> None:
    pool = await stage.pool(concurrency=1)
    await submit(pool, [*in_group(1), *in_groups(1, "other")])
    claimed = await claim_one(pool)
    await settle(pool, Settlement("g", claimed.epoch, [], in_place(5_000)))
    assert broker_ids(await claim_one(pool)) == ["other0"]


async def test_what_went_well_before_the_failure_is_settled_with_it(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(3))
    claimed = await claim_one(pool, chunk=3)
    first = outbox_item(claimed.entries[0], ACK)
    await settle(pool, Settlement("g", claimed.epoch, [first], in_place(1_000)))
    assert await outboxed(pool) == [first]
    stage.advance(1_000)
    again = await claim_one(pool, chunk=3)
    assert broker_ids(again) == ["g1", "g2"]
    assert [message.tries for message in again.entries] == [1, 0]


async def test_tries_rise_with_each_hold_and_not_with_a_wait(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    for tries, release in [(0, in_place(10)), (1, in_place(10)), (2, "10"), (2, in_place(10)), (3, "10")]:
        claimed = await claim_one(pool)
        assert claimed.entries[0].tries == tries
        await settle(pool, Settlement("g", claimed.epoch, [], release))
        stage.advance(10)


async def test_tries_are_forgotten_with_the_message(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    claimed = await claim_one(pool)
    await settle(pool, Settlement("g", claimed.epoch, [], in_place(10)))
    stage.advance(10)
    assert await drain(pool) == ["g0"]
    assert not await stage.client.exists(pool.keys.tries)
    await submit(pool, in_group(1))
    assert (await claim_one(pool)).entries[0].tries == 0


async def test_a_hold_said_twice_counts_once(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    claimed = await claim_one(pool)
    for _ in range(2):
        await settle(pool, Settlement("g", claimed.epoch, [], in_place(10)), call=7)
    stage.advance(10)
    assert (await claim_one(pool)).entries[0].tries == 1


async def test_a_held_group_keeps_a_quarter_of_the_pool_and_sends_the_rest_back_in_order(stage: Stage) -> None:
    pool = await stage.pool(capacity=20)
    await submit(pool, in_group(12))
    claimed = await claim_one(pool)
    answer = await settle(pool, Settlement("g", claimed.epoch, [], in_place(10)))
    tail = [outbox_item(message, nack(10)) for message in in_group(12)[5:]]
    assert answer.cascaded == tail
    assert set(await outboxed(pool)) == set(tail)
    assert await pool.room() == 15
    stage.advance(10)
    assert await drain(pool) == ["g0", "g1", "g2", "g3", "g4"]


async def test_a_held_group_goes_on_after_its_worker_died_while_it_waited(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    claimed = await claim_one(pool, worker="dead")
    await settle(pool, Settlement("g", claimed.epoch, [], in_place(TTL_MS * 2)), worker="dead")
    stage.advance(TTL_MS * 2)
    assert await drain(pool, worker="alive") == ["g0", "g1"]


async def test_a_pool_that_is_going_away_tries_its_held_groups_at_once(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    claimed = await claim_one(pool)
    await settle(pool, Settlement("g", claimed.epoch, [], in_place(60_000)))
    await pool.configure("2", pool_settings(draining=True))
    assert await drain(pool) == ["g0", "g1"]


async def test_a_skipped_message_lets_its_group_go_on_under_the_same_lease(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    claimed = await claim_one(pool, chunk=2)
    skipped = outbox_item(claimed.entries[0], nack(30_000))
    answer = await settle(pool, Settlement("g", claimed.epoch, [skipped], "keep"))
    assert not answer.refused
    assert await outboxed(pool) == [skipped]
    assert await pool.renew("w", [("g", claimed.epoch)], ttl_ms=TTL_MS) == []


async def test_a_parked_message_is_acked_and_put_aside_whole(stage: Stage) -> None:
    queue, pool = await stage.queue(), await stage.pool()
    (tracking,) = await queue.track([("1", "m1", "P", "g", "h1")])
    await submit(pool, [entry("1", token=tracking.token)])
    letter = json.dumps({"messageId": "m1", "reason": "no"})
    await settle(pool, settlement(await claim_one(pool), verdict=park(letter)))
    ((_, items),) = (await pool.outbox("w")).items()
    _, outcome = unpack_item(items[0])
    for _ in range(2):
        await queue.report([outcome])
    assert await stage.client.lrange(queue.keys.dead, 0, -1) == [letter]
    (settled,) = await queue.settled(applied=0, want=10)
    assert (settled.acked, settled.handle) == (True, "h1")


async def test_a_call_tells_what_the_pool_does_after_a_failure(stage: Stage) -> None:
    pool = await stage.pool(on_failure="park", park_after=3, draining=True)
    policy = (await pool.exchange("w", ttl_ms=TTL_MS)).policy
    assert (policy.on_failure, policy.park_after, policy.draining) == ("park", 3, True)


async def test_all_that_wait_in_place_keep_half_of_the_pool_and_the_rest_goes_back_whole(stage: Stage) -> None:
    pool = await stage.pool(concurrency=20, capacity=20)
    await submit(pool, [message for group in "abcd" for message in in_group(4, group)])
    claims = await claim(pool, 4)
    answer = await settle(pool, *(Settlement(c.lane, c.epoch, [], in_place(10)) for c in claims))
    assert [item.split("\x1f")[1] for item in answer.cascaded] == ["c2", "c3", "d0", "d1", "d2", "d3"]
    assert await pool.room() == 10
    stage.advance(10)
    assert await drain(pool) == [f"{group}{i}" for group, n in (("a", 4), ("b", 4), ("c", 2)) for i in range(n)]
    assert not await stage.client.exists(pool.keys.in_place)


async def test_groups_that_their_endpoint_always_refuses_as_fenced_leave_room_for_others(stage: Stage) -> None:
    pool = await stage.pool(concurrency=100, capacity=100)
    await submit(pool, in_groups(100, "fenced"))
    claims = await claim(pool, 100)
    answer = await settle(pool, *(Settlement(c.lane, c.epoch, [], fenced(1_000)) for c in claims))
    assert len(answer.cascaded) == 50
    assert {item.rsplit("\x1f", 1)[1] for item in answer.cascaded} == {nack(30_000)}
    assert await pool.room() == 50


async def test_a_group_that_is_refused_as_fenced_ten_times_in_a_row_goes_back(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    for refusals in range(1, 10):
        claimed = await claim_one(pool)
        assert claimed.entries[0].tries == 0, "it says nothing of the message"
        assert (await settle(pool, Settlement("g", claimed.epoch, [], fenced(10)))).cascaded == [], refusals
        stage.advance(10)
    claimed = await claim_one(pool)
    answer = await settle(pool, Settlement("g", claimed.epoch, [], fenced(10)))
    assert answer.cascaded == [outbox_item(message, nack(30_000)) for message in in_group(2)]
    assert await stage.client.exists(pool.keys.tries, pool.keys.later, pool.keys.in_place) == 0


async def test_a_delivery_between_two_refusals_begins_the_count_anew(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    for release in [fenced(10)] * 9 + ["ready"] + [fenced(10)] * 9:
        claimed = await claim_one(pool)
        items = [outbox_item(claimed.entries[0], ACK)] if release == "ready" else []
        assert (await settle(pool, Settlement("g", claimed.epoch, items, release))).cascaded == []
        stage.advance(10)
    assert await drain(pool) == ["g1"]
    assert not await stage.client.exists(pool.keys.tries)


async def test_a_group_that_waits_in_place_takes_no_more_than_its_share_meanwhile(stage: Stage) -> None:
    pool = await stage.pool(capacity=20)
    await submit(pool, in_group(3))
    claimed = await claim_one(pool)
    await settle(pool, Settlement("g", claimed.epoch, [], in_place(5_000)))
    answer = await pool.submit("q", OWNER_EPOCH, [*in_group(6), *in_groups(1, "other")])
    assert (answer.accepted, answer.behind) == (7, {5: 5_000})
    stage.advance(5_000)
    assert sorted(await drain(pool)) == ["g0", "g1", "g2", "g3", "g4", "other0"]


async def test_a_group_that_is_let_go_by_hand_counts_no_more_among_those_that_wait(stage: Stage) -> None:
    pool = await stage.pool(capacity=20)
    await submit(pool, in_group(5))
    claimed = await claim_one(pool)
    await settle(pool, Settlement("g", claimed.epoch, [], in_place(60_000)))
    assert await PoolByHand(stage.client, "P", now_ms=str(stage.now_ms)).release("g") == "released"
    assert not await stage.client.exists(pool.keys.in_place)


async def test_a_share_is_never_larger_than_what_rests_leaves_room_for(stage: Stage) -> None:
    # Refused whole it would come again every half minute, and never fit.
    pool = await stage.pool(capacity=12)
    await submit(pool, in_group(3))
    claimed = await claim_one(pool)
    await settle(pool, Settlement("g", claimed.epoch, [], in_place(3_600_000)))
    answer = await pool.submit("q", OWNER_EPOCH, in_groups(10, "other"))
    assert answer.accepted == 9
