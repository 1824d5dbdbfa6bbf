"""What an operator does by hand: limits that outlive a republish, groups released, messages put aside, letters."""

from __future__ import annotations

import json

import pytest

from fleet.letter import skipped
from fleet.operate.dead_letters import LettersWanted, letters, purge
from fleet.state import groups
from fleet.state.by_hand import NO_RATE, PoolByHand
from fleet.state.entry import Entry, unpack_item
from fleet.state.keys import POOL_WAKE_CHANNEL, ROOM_CHANNEL
from fleet.state.letters import Letters
from fleet.state.pool import Pool, Settlement, in_place
from fleet.state.queue import Queue
from fleet.state.scripts import SEP
from tests.state.stage import (
    TTL_MS,
    Stage,
    claim,
    claim_one,
    drain,
    entry,
    hearing,
    in_group,
    in_groups,
    outboxed,
    pool_settings,
    settle,
    settlement,
    submit,
)


def by_hand(stage: Stage, code: str = "P") -> PoolByHand:
    return PoolByHand(stage.client, code, now_ms=str(stage.now_ms))


async def waiting(stage: Stage, pool: Pool, group: str, *, ms: int = 60_000) -> None:
    """The head of the group has failed, and is tried again in place."""
    claimed = next(one for one in await claim(pool, 100) if one.lane == group)
    await settle(pool, Settlement(group, claimed.epoch, [], in_place(ms)))


async def seen(stage: Stage, group: str = "g") -> groups.GroupView:
    view = await groups.group(stage.client, "P", group, now_ms=str(stage.now_ms))
    assert view is not None
    return view


async def tracked(stage: Stage, count: int) -> tuple[Queue, list[Entry]]:
    queue = await stage.queue()
    messages = in_group(count)
    for message, tracking in zip(
        messages,
        await queue.track([(m.broker_id, m.message_id, "P", m.group, f"h{m.broker_id}") for m in messages]),
        strict=True,
    ):
        message.token = tracking.token
    return queue, messages


# A pool's settings ---------------------------------------------------------------------------------


async def test_limits_set_by_hand_hold_at_once_and_for_the_next_claim(stage: Stage) -> None:
    pool = await stage.pool(concurrency=3)
    await submit(pool, in_groups(5))
    assert len(await claim(pool, 9)) == 3
    adjusted = await by_hand(stage).adjust(concurrency=4)
    assert (adjusted.tag, adjusted.concurrency, adjusted.changed) == ("ok", 4, True)
    assert len(await claim(pool, 9)) == 1


async def test_a_lowered_limit_lets_what_runs_finish_and_starts_nothing_above_it(stage: Stage) -> None:
    pool = await stage.pool(concurrency=3)
    await submit(pool, in_groups(6))
    claims = await claim(pool, 9)
    await by_hand(stage).adjust(concurrency=1)
    assert (await settle(pool, settlement(claims[0]), settlement(claims[1]))).refused == set()
    assert await claim(pool, 9) == []
    await settle(pool, settlement(claims[2]))
    assert len(await claim(pool, 9)) == 1


async def test_the_same_revision_published_again_undoes_nothing_and_the_next_one_does(stage: Stage) -> None:
    pool = await stage.pool(concurrency=3, rate_limit_per_minute=5)
    await by_hand(stage).adjust(concurrency=9, rate=NO_RATE)
    assert not await pool.configure("1", pool_settings(concurrency=3, rate_limit_per_minute=5))
    now = await groups.pool_now(stage.client, "P")
    assert now is not None
    assert (now.settings.concurrency, now.settings.rate_limit_per_minute, now.by_hand) == (9, None, True)
    assert await pool.configure("2", pool_settings(concurrency=3, rate_limit_per_minute=5))
    now = await groups.pool_now(stage.client, "P")
    assert now is not None
    assert (now.settings.concurrency, now.settings.rate_limit_per_minute, now.by_hand) == (3, 5, False)


async def test_the_mark_stands_between_two_revisions_of_full_size(stage: Stage) -> None:
    pool = stage.unknown_pool()
    await pool.configure("1794997257470123", pool_settings())
    await by_hand(stage).adjust(concurrency=2)
    await by_hand(stage).adjust(concurrency=3)
    assert not await pool.configure("1794997257470123", pool_settings())
    assert await pool.configure("1794997257470124", pool_settings())


async def test_setting_what_is_there_already_changes_nothing(stage: Stage) -> None:
    pool = await stage.pool(concurrency=3)
    assert not (await by_hand(stage).adjust(concurrency=3, rate=NO_RATE)).changed
    assert await pool.configure("1", pool_settings(concurrency=4)), "no mark was left"


async def test_a_pool_that_is_not_there_is_unknown(stage: Stage) -> None:
    assert (await by_hand(stage).adjust(concurrency=3)).tag == "unknown"
    assert await stage.keys() == set()


async def test_capacity_grows_with_the_concurrency_where_nobody_named_one_and_never_shrinks(stage: Stage) -> None:
    await stage.pool(concurrency=2, capacity=50)
    assert (await by_hand(stage).adjust(concurrency=10)).capacity == 200
    assert (await by_hand(stage).adjust(concurrency=2)).capacity == 200
    await stage.pool("Q", concurrency=2, capacity=77)
    assert (await by_hand(stage, "Q").adjust(concurrency=10)).capacity == 77


async def test_raising_a_limit_wakes_workers_and_who_waits_for_room(stage: Stage) -> None:
    pool = await stage.pool(concurrency=1, capacity=50)
    await submit(pool, in_groups(2))
    await claim(pool)
    await pool.room(60)
    async with hearing(stage, POOL_WAKE_CHANNEL + "P") as woken, hearing(stage, ROOM_CHANNEL) as told:
        await by_hand(stage).adjust(concurrency=5)
        assert await woken.since(pool.keys.settings) == ["+1"]
        assert await told.since(pool.keys.settings) == ["P"]


async def test_a_drain_by_hand_delivers_what_is_there_takes_nothing_new_and_is_undone_by_hand(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    await waiting(stage, pool, "g")
    assert (await by_hand(stage).adjust(draining=True)).changed
    assert (await pool.submit("q", "1", in_groups(1))).tag == "draining"
    assert await drain(pool) == ["g0", "g1"], "it waited, and does not any more"
    assert not await pool.configure("1", pool_settings())
    assert (await by_hand(stage).adjust(draining=False)).changed
    await submit(pool, in_groups(1))


async def test_a_pool_that_is_configured_no_more_is_adjusted_but_never_opened_and_still_goes(stage: Stage) -> None:
    pool = await stage.pool(concurrency=1)
    await pool.configure("2", pool_settings(draining=True))
    assert (await by_hand(stage).adjust(draining=False)).tag == "gone"
    assert (await by_hand(stage).adjust(concurrency=5)).concurrency == 5
    assert await pool.remove("2") == "gone"


# Groups --------------------------------------------------------------------------------------------


async def test_a_released_group_is_claimed_at_once_before_all_others(stage: Stage) -> None:
    pool = await stage.pool(concurrency=9)
    await submit(pool, in_group(2))
    await waiting(stage, pool, "g")
    await submit(pool, in_groups(1, "other"))
    async with hearing(stage, POOL_WAKE_CHANNEL + "P") as woken:
        assert await by_hand(stage).release("g") == "released"
        assert await woken.since(pool.keys.settings) == ["+1"]
    assert (await claim_one(pool)).lane == "g"


async def test_release_says_why_there_was_nothing_to_do(stage: Stage) -> None:
    pool = await stage.pool()
    assert await by_hand(stage).release("g") == "none"
    await submit(pool, in_group(1))
    assert await by_hand(stage).release("g") == "ready"
    await claim_one(pool)
    assert await by_hand(stage).release("g") == "leased"


async def test_the_listing_begins_with_those_that_wait_and_stops_at_its_limit(stage: Stage) -> None:
    pool = await stage.pool(concurrency=2)
    await submit(pool, [*in_groups(1, "w"), *in_groups(1, "l"), *in_groups(5, "r")])
    claims = {one.lane: one for one in await claim(pool, 2)}
    await settle(pool, Settlement("w0", claims["w0"].epoch, [], in_place(60_000)))
    found = await groups.groups(stage.client, "P", limit=4, now_ms=str(stage.now_ms))
    assert [(one.lane, one.state) for one in found] == [
        ("w0", "waiting"),
        ("l0", "leased"),
        ("r0", "ready"),
        ("r1", "ready"),
    ]
    assert (found[0].head.tries, found[0].until_ms) == (1, stage.now_ms + 60_000)
    assert (found[1].worker, found[1].until_ms) == ("w", stage.now_ms + TTL_MS)
    assert len(await groups.groups(stage.client, "P", limit=0)) == 7
    assert len(await groups.groups(stage.client, "P", limit=1)) == 1


async def test_a_group_shows_both_its_tiers_and_the_one_under_way_as_its_head(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    claimed = await claim_one(pool)
    await submit(pool, [entry("urgent", high=True)])
    view = await seen(stage)
    assert (view.regular, view.high, view.head.broker_id, view.epoch) == (2, 1, "g0", claimed.epoch)
    stage.advance(TTL_MS)
    assert (await seen(stage)).state == "lapsed"
    await settle(pool, settlement(claimed, count=0), worker="w")
    assert (await seen(stage)).head.broker_id == "urgent"


async def test_the_next_permit_is_when_the_window_has_room_again(stage: Stage) -> None:
    pool = await stage.pool(rate_limit_per_minute=2)
    await submit(pool, in_groups(9))
    await claim(pool)
    stage.advance(1_000)
    now = await groups.pool_now(stage.client, "P", now_ms=str(stage.now_ms))
    assert now is not None
    assert now.permit_ms is None
    await claim(pool, 9)
    now = await groups.pool_now(stage.client, "P", now_ms=str(stage.now_ms))
    assert now is not None
    assert now.permit_ms == stage.now_ms - 1_000 + groups.RATE_WINDOW_MS
    due_ms = (await pool.exchange("w", ttl_ms=10 * TTL_MS, want=9)).due_ms
    assert due_ms is not None
    assert due_ms <= now.permit_ms - stage.now_ms + 1
    stage.advance(now.permit_ms - stage.now_ms)
    assert len(await claim(pool, 9)) == 1


# Putting a message aside ---------------------------------------------------------------------------


async def test_a_skipped_message_is_acked_and_kept_and_its_group_goes_on(stage: Stage) -> None:
    pool = await stage.pool()
    queue, messages = await tracked(stage, 3)
    await submit(pool, messages)
    await waiting(stage, pool, "g")
    head = (await seen(stage)).head
    letter = skipped(head, pool="P")
    async with hearing(stage, POOL_WAKE_CHANNEL + "P") as woken:
        done = await by_hand(stage).skip(head, letter)
        assert await woken.since(pool.keys.settings) == ["+1"]
    assert done.tag == "skipped"
    assert await pool.outboxes() == {done.operator}
    assert await outboxed(pool, done.operator) == [f"{head.key}{SEP}{head.token}{SEP}p{letter}"]
    for _ in range(2):
        await by_hand(stage).report(head, letter, done.operator)
    assert await pool.outboxes() == set()
    assert await stage.client.lrange(queue.keys.dead, 0, -1) == [letter]
    (settled,) = await queue.settled(applied=0, want=10)
    assert (settled.broker_id, settled.acked, settled.handle) == ("g0", True, "hg0")
    assert await drain(pool) == ["g1", "g2"]
    assert await stage.client.exists(pool.keys.tries, pool.keys.later, pool.keys.entries) == 0


async def test_what_is_skipped_by_one_who_dies_is_copied_as_that_of_any_dead_worker(stage: Stage) -> None:
    pool = await stage.pool()
    queue, messages = await tracked(stage, 1)
    await submit(pool, messages)
    head = (await seen(stage)).head
    done = await by_hand(stage).skip(head, skipped(head, pool="P"))
    # As coordinator/watch.py does for whoever is not alive.
    assert done.operator not in await stage.registry().alive()
    for call, items in (await pool.outbox(done.operator)).items():
        for item in items:
            await queue.report([unpack_item(item)[1]])
        await pool.trim_outbox(done.operator, [call])
    # And the one who died wakes up after all.
    await by_hand(stage).report(head, skipped(head, pool="P"), done.operator)
    assert len(await queue.settled(applied=0, want=10)) == 1
    assert await stage.client.llen(queue.keys.dead) == 1


async def test_a_message_under_way_cannot_be_skipped_and_nothing_changes(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    claimed = await claim_one(pool)
    head = (await seen(stage)).head
    done = await by_hand(stage).skip(head, "{}")
    assert (done.tag, done.until_ms) == ("leased", stage.now_ms + TTL_MS)
    assert (await settle(pool, settlement(claimed))).refused == set()
    assert (await by_hand(stage).skip(head, "{}")).tag == "changed"
    assert await outboxed(pool) != []
    assert len(await pool.outboxes()) == 1
    assert await drain(pool) == ["g1"]


async def test_a_lapsed_lease_is_taken_away_with_the_skip_and_its_worker_is_refused(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(2))
    claimed = await claim_one(pool)
    stage.advance(TTL_MS)
    assert (await by_hand(stage).skip((await seen(stage)).head, "{}")).tag == "skipped"
    assert (await settle(pool, settlement(claimed))).refused == {0}
    assert await drain(pool, worker="another") == ["g1"]


@pytest.mark.parametrize("high", [False, True])
async def test_skipping_the_last_message_leaves_no_group_behind(stage: Stage, high: bool) -> None:
    pool = await stage.pool()
    await submit(pool, [entry("1", high=high)])
    done = await by_hand(stage).skip((await seen(stage)).head, "{}")
    await pool.trim_outbox(done.operator, [1])
    assert await claim(pool, 9) == []
    assert await stage.keys() == {pool.keys.settings, pool.keys.epochs}


async def test_skipping_takes_the_high_priority_message_first_and_tells_who_waits_for_room(stage: Stage) -> None:
    pool = await stage.pool(capacity=50)
    await submit(pool, [*in_groups(48, "x"), entry("1"), entry("2", high=True)])
    await pool.room(1)
    async with hearing(stage, ROOM_CHANNEL) as told:
        assert (await seen(stage)).head.broker_id == "2"
        assert (await by_hand(stage).skip((await seen(stage)).head, "{}")).tag == "skipped"
        assert await told.since(pool.keys.settings) == ["P"]
    assert (await seen(stage)).head.broker_id == "1"
    assert await stage.client.exists(pool.keys.high) == 0


# Letters -------------------------------------------------------------------------------------------


async def test_letters_are_read_newest_first_page_by_page_and_removed_by_their_text(stage: Stage) -> None:
    queue = await stage.queue()
    raws = [json.dumps({"kind": "parked", "messageId": f"m{i}", "reason": "no"}) for i in range(450)]
    await queue.bury(raws, keep=1_000)
    found = [letter async for letter in letters(stage.client, ["q"], LettersWanted())]
    assert [letter.raw for letter in found] == raws[::-1]
    assert [one.raw async for one in letters(stage.client, ["q"], LettersWanted(id="m7"))] == [raws[7]]
    box = Letters(stage.client, "q")
    assert await box.remove({raws[0]: 1, raws[1]: 1, "not there": 1}) == 2
    assert await box.remove({raws[0]: 1}) == 0
    assert await purge(stage.client, found) == 448
    assert await stage.client.exists(queue.keys.dead) == 0


async def test_a_purge_takes_only_what_was_seen(stage: Stage) -> None:
    queue = await stage.queue()
    await queue.bury(["{}", "{}"], keep=9)
    found = [letter async for letter in letters(stage.client, ["q"], LettersWanted())]
    await queue.bury(['{"reason":"later"}'], keep=9)
    assert await purge(stage.client, found) == 2
    assert await stage.client.lrange(queue.keys.dead, 0, -1) == ['{"reason":"later"}']
