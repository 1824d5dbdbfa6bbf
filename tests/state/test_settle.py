from __future__ import annotations

import pytest

from fleet.state.entry import ACK, nack, outbox_item
from fleet.state.pool import Settlement, failed
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


async def everything(stage: Stage) -> dict[str, object]:
    """The whole of a single-slot state, to see that nothing changed."""
    state: dict[str, object] = {}
    for key in await stage.keys():
        match await stage.client.type(key):
            case "hash":
                state[key] = await stage.client.hgetall(key)
            case "zset":
                state[key] = await stage.client.zrange(key, 0, -1, withscores=True)
            case "set":
                state[key] = await stage.client.smembers(key)
            case "list":
                state[key] = await stage.client.lrange(key, 0, -1)
    return state


async def test_a_settle_takes_exactly_its_items_off_the_head(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(5))
    claimed = await claim_one(pool, chunk=3)
    await settle(pool, settlement(claimed, count=2))
    assert await pool.room() == 997
    assert broker_ids(await claim_one(pool, chunk=9)) == ["g2", "g3", "g4"]


async def test_settled_items_stand_in_the_workers_outbox(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    claimed = await claim_one(pool, chunk=2)
    first, second = claimed.entries
    items = [outbox_item(first, ACK), outbox_item(second, nack(5000))]
    await settle(pool, Settlement("g", claimed.epoch, items, "ready"))
    assert await outboxed(pool) == sorted(items)
    assert await pool.outboxes() == {"w"}


async def test_a_kept_lease_goes_on_with_the_rest_of_its_messages(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    claimed = await claim_one(pool, chunk=2)
    await settle(pool, settlement(claimed, count=1, release="keep"))
    assert await claim(pool) == []
    claimed.entries.pop(0)
    assert (await settle(pool, settlement(claimed))).refused == set()
    assert [i.split("\x1f")[1] for i in await outboxed(pool)] == ["g0", "g1"]


async def test_what_arrives_while_a_group_is_leased_waits_for_its_release(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    claimed = await claim_one(pool)
    await settle(pool, settlement(claimed, release="keep"))
    await submit(pool, [entry("new")])
    assert await claim(pool) == []
    await settle(pool, Settlement("g", claimed.epoch, [], "ready"))
    assert await drain(pool) == ["new"]


async def test_a_released_group_without_messages_is_in_no_line(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    await settle(pool, settlement(await claim_one(pool)))
    assert await claim(pool) == []
    await submit(pool, [entry("next")])
    assert await drain(pool) == ["next"]


@pytest.mark.parametrize("release", ["keep", "ready", "5000"])
async def test_a_settle_said_twice_changes_nothing(stage: Stage, release: str) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(4))
    once = settlement(await claim_one(pool, chunk=2), release=release)
    await settle(pool, once, call=1)
    before = await everything(stage)
    again = await settle(pool, once, call=1)
    assert again.refused == (set() if release == "keep" else {0})
    assert await everything(stage) == before


async def test_a_failing_settle_said_twice_fails_nothing_more(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2) + in_group(2, "z"))
    claims = await claim(pool, 2)
    once = settlement(claims[0], verdict=nack(30_000), release=failed(10_000, "b"))
    assert len((await settle(pool, once, call=1)).cascaded) == 1
    before = await everything(stage)
    assert (await settle(pool, once, call=1)).cascaded == []
    assert await everything(stage) == before


async def test_a_settle_said_twice_after_its_items_were_trimmed_brings_nothing_back(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    once = settlement(await claim_one(pool), release="keep")
    await settle(pool, once, call=1)
    await settle(pool, trims=[1])
    await settle(pool, once, call=1)
    assert await outboxed(pool) == []
    assert await pool.outboxes() == set()


async def test_a_repeated_settle_does_not_take_the_same_message_redelivered_since(stage: Stage) -> None:
    # Skipped, nacked at the source, taken from there again: it has another token now.
    pool = await stage.pool()
    await submit(pool, in_group(1))
    once = settlement(await claim_one(pool), verdict=nack(0), release="keep")
    await settle(pool, once, call=1)
    await submit(pool, in_group(1, token="2"))
    await settle(pool, once, call=1)
    assert await pool.queued([entry("g0").key]) == ([True], once.items)


async def test_a_stale_epoch_changes_nothing_and_is_refused(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(3))
    slow = await claim_one(pool, worker="slow", chunk=2)
    stage.advance(TTL_MS)
    await claim_one(pool, worker="quick", chunk=2)
    before = await everything(stage)
    for release in ("keep", "ready", "100", failed(1, "b")):
        stale = settlement(slow, verdict=nack(1), release=release)
        answer = await settle(pool, stale, worker="slow")
        assert (answer.refused, answer.cascaded) == ({0}, [])
    assert await everything(stage) == before


async def test_an_epoch_is_compared_whole(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    claimed = await claim_one(pool)
    for epoch in ("", "0", claimed.epoch[:-1], claimed.epoch + "0", str(int(claimed.epoch) + 1)):
        forged = Settlement("g", epoch, settlement(claimed).items, "ready")
        assert (await settle(pool, forged)).refused == {0}


async def test_one_stale_settlement_leaves_the_others_of_its_call_alone(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(3))
    claims = await claim(pool, 3)
    claims[1].epoch = "1"
    answer = await settle(pool, *(settlement(c) for c in claims))
    assert answer.refused == {1}
    assert [i.split("\x1f")[1] for i in await outboxed(pool)] == ["g0", "g2"]


async def test_a_group_released_twice_in_one_call_has_one_place_in_line(stage: Stage) -> None:
    # Its second place would be a second lease.
    pool = await stage.pool()
    await submit(pool, in_group(4))
    claimed = await claim_one(pool, chunk=2)
    first, second = settlement(claimed, count=1), settlement(claimed, count=2)
    second.items.pop(0)
    await settle(pool, first, second)
    assert len(await claim(pool, 5)) == 1


async def test_a_settle_and_a_claim_are_one_call(stage: Stage) -> None:
    pool = await stage.pool(concurrency=1)
    await submit(pool, in_group(2))
    answer = await settle(pool, settlement(await claim_one(pool)), want=1)
    assert [broker_ids(c) for c in answer.claims] == [["g1"]]


async def test_a_later_release_lets_the_group_wait_and_frees_its_slot(stage: Stage) -> None:
    pool = await stage.pool(concurrency=1)
    await submit(pool, in_group(2, "a") + in_group(1, "b"))
    a = await claim_one(pool)
    answer = await settle(pool, settlement(a, count=0, release="5000"), want=1)
    assert groups(answer.claims) == ["b"]
    await settle(pool, settlement(answer.claims[0]))
    waiting = await pool.exchange("w", ttl_ms=TTL_MS, want=1)
    assert waiting.claims == []
    assert waiting.due_ms is not None
    stage.advance(4999)
    assert await claim(pool) == []
    stage.advance(waiting.due_ms - 4999)
    assert broker_ids(await claim_one(pool, chunk=2)) == ["a0", "a1"]


async def test_a_submit_does_not_wake_a_group_that_waits_for_later(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    await settle(pool, settlement(await claim_one(pool), count=0, release="5000"))
    await submit(pool, [entry("next"), entry("urgent", high=True)])
    assert await claim(pool) == []
    stage.advance(5001)
    assert await drain(pool) == ["urgent", "g0", "next"]


async def test_trimming_is_idempotent_and_empties_the_list_of_outboxes(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(2))
    for call in (1, 2):
        await settle(pool, settlement(await claim_one(pool)), call=call)
    assert await pool.trim_outbox("w", [1]) == 1
    assert await pool.trim_outbox("w", [1]) == 1
    assert await pool.outboxes() == {"w"}
    assert await pool.trim_outbox("w", [1, 2]) == 0
    assert await pool.trim_outbox("w", [1, 2]) == 0
    assert await pool.outboxes() == set()


async def test_a_workers_next_exchange_trims_too(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    answer = await settle(pool, settlement(await claim_one(pool)), want=1, call=1)
    next_one = settlement(answer.claims[0])
    await settle(pool, next_one, trims=[1], call=2)
    assert await pool.outbox("w") == {2: next_one.items}
    await settle(pool, trims=[1, 2])
    assert await pool.outboxes() == set()


async def test_the_outbox_keeps_what_each_call_settled_under_its_number(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(12))
    for call in range(1, 13):
        await settle(pool, settlement(await claim_one(pool)), call=call)
    assert list(await pool.outbox("w")) == list(range(1, 13))


async def test_a_failure_stands_in_the_outbox_with_its_siblings(stage: Stage) -> None:
    # Trimmed together, or a crash between would lose one of them.
    pool = await stage.pool()
    await submit(pool, in_group(3))
    failing = settlement(await claim_one(pool), verdict=nack(30_000), release=failed(10_000, "b"))
    answer = await settle(pool, failing, call=5)
    assert await pool.outbox("w") == {5: failing.items + answer.cascaded}


async def test_a_settlement_that_names_more_than_is_there_takes_nothing(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    wrong = settlement(await claim_one(pool), release="keep")
    wrong.items.append(outbox_item(entry("never"), ACK))
    await settle(pool, wrong)
    assert await outboxed(pool) == []
    assert await pool.room() == 999


async def test_the_outbox_of_a_dead_worker_stays_until_somebody_trims_it(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_groups(2))
    done = settlement(await claim_one(pool, worker="dead"))
    await settle(pool, done, worker="dead", call=3)
    stage.advance(100 * TTL_MS)
    await claim(pool, 2, worker="alive")
    assert await pool.outboxes() == {"dead"}
    assert await pool.outbox("dead") == {3: done.items}
    assert await pool.trim_outbox("dead", [3]) == 0
    assert await pool.outboxes() == set()
