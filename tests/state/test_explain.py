"""Each state that a message or a group can be in, made as it comes about, and named with what it waits for."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.letter import skipped
from fleet.sources.base import Depth
from fleet.state import groups
from fleet.state.breakers import SharedBreakers
from fleet.state.by_hand import PoolByHand
from fleet.state.entry import ACK, nack, outbox_item, unpack_item
from fleet.state.groups import RATE_WINDOW_MS
from fleet.state.pool import Settlement, in_place
from fleet.words import at
from tests.state.explaining import HTTP_TIMEOUT_MS, explain, served, taken
from tests.state.stage import (
    TTL_MS,
    Stage,
    claim,
    claim_one,
    entry,
    in_group,
    in_groups,
    pause,
    pool_settings,
    settle,
    settlement,
    submit,
)

# In a pool -----------------------------------------------------------------------------------------


async def test_what_nobody_has_heard_of_is_unknown_and_queues_not_looked_into_are_named(stage: Stage) -> None:
    found = await explain(stage, "nothing")
    assert (found.state, found.waits_for, found.until_ms) == ("UNKNOWN", "nothing", None)
    looks = "Queue q cannot be searched without receiving its messages"
    assert found.details[-1] == f"{looks}; it holds 0 that wait and 0 that are hidden."
    deep = await explain(stage, "nothing", depth=(Depth(1_200, 3, None), ""))
    assert deep.state == "UNKNOWN"
    assert deep.waits_for == "nothing that is known; it may stand in a queue that cannot be looked into"
    assert deep.details[-1] == f"{looks}; it holds 1,200 that wait and 3 that are hidden."
    silent = await explain(stage, "nothing", depth=(None, "nats://h cannot be reached"))
    assert silent.waits_for == deep.waits_for
    assert silent.details[-1] == f"{looks}; it does not say how many it holds: nats://h cannot be reached."


@pytest.mark.parametrize("subject", ["mg0", "g0", "g"], ids=["message", "broker id", "group"])
async def test_what_can_be_claimed_is_ready(stage: Stage, subject: str) -> None:
    await taken(stage, await served(stage))
    assert (await explain(stage, subject)).state == "READY"


async def test_a_message_behind_others_names_the_first_and_what_that_waits_for(stage: Stage) -> None:
    pool = await served(stage)
    await taken(stage, pool, 3)
    claimed = await claim_one(pool)
    await settle(pool, Settlement("g", claimed.epoch, [], in_place(30_000)))
    found = await explain(stage, "mg2")
    assert (found.state, found.until_ms) == ("QUEUED", stage.now_ms + 30_000)
    assert "mg0" in found.waits_for
    assert "It is behind 2 messages of group g; the first of them is mg0." in found.details
    assert any("mg0 is WAITING" in sentence for sentence in found.details)


async def test_a_message_under_way_names_its_worker_its_epoch_and_its_lease(stage: Stage) -> None:
    pool = await served(stage)
    await taken(stage, pool, 2)
    claimed = await claim_one(pool, worker="worker-7")
    beat = {"role": "worker", "name": "worker-7", "httpTimeoutMs": HTTP_TIMEOUT_MS}
    await stage.registry().beat("worker-7", beat, ttl_ms=10 * TTL_MS)
    for subject in ("mg0", "g"):
        found = await explain(stage, subject)
        # Its lease is renewed while the request lasts: its end is no time at which anything happens.
        assert (found.state, found.until_ms) == ("PROCESSING", stage.now_ms + HTTP_TIMEOUT_MS)
        assert "worker-7" in found.waits_for and "HTTP timeout" in found.waits_for
        assert any(at(stage.now_ms + TTL_MS) in sentence for sentence in found.details)
        assert any(claimed.epoch in sentence for sentence in found.details)
        assert any(f"since {at(stage.now_ms)[3:]}" in sentence for sentence in found.details)
    behind = await explain(stage, "mg1")
    assert (behind.state, behind.until_ms) == ("QUEUED", stage.now_ms + HTTP_TIMEOUT_MS)


@pytest.mark.parametrize(
    ("told", "waits_for", "words"),
    [
        ({"attempt": 2, "asking": True}, "attempt 2 of 3 to be given up", "attempt 3 of 3 follows"),
        ({"attempt": 3, "asking": True}, "attempt 3 of 3 to be given up", "the policy of pool P says what follows"),
        ({"attempt": 1, "asking": False}, "attempt 2 of 3, after a pause", "has failed"),
    ],
)
async def test_a_long_delivery_names_its_attempt_and_until_when_that_may_last(
    stage: Stage, told: dict[str, Any], waits_for: str, words: str
) -> None:
    pool = await served(stage)
    await taken(stage, pool)
    await claim_one(pool, worker="worker-7")
    delivery = {"pool": "P", "group": "g", "messageId": "mg0", "of": 3, **told}
    delivery |= {"began": stage.now_ms - 5_000, "until": stage.now_ms + 7_000}
    beat = {"role": "worker", "name": "worker-7", "httpTimeoutMs": HTTP_TIMEOUT_MS, "deliveries": [delivery]}
    await stage.registry().beat("worker-7", beat, ttl_ms=10 * TTL_MS)
    found = await explain(stage, "mg0")
    assert (found.state, found.until_ms) == ("PROCESSING", stage.now_ms + 7_000)
    assert waits_for in found.waits_for
    assert any(at(stage.now_ms - 5_000) in sentence for sentence in found.details)
    assert any(words in sentence for sentence in found.details), found.details


async def test_a_delivery_of_a_worker_that_died_waits_for_the_end_of_its_lease(stage: Stage) -> None:
    pool = await served(stage)
    await taken(stage, pool)
    await claim_one(pool, worker="gone")
    found = await explain(stage, "mg0")
    assert (found.state, found.until_ms) == ("PROCESSING", stage.now_ms + TTL_MS)
    assert "the lease of worker gone to end" in found.waits_for


async def test_high_priority_that_came_later_waits_for_what_is_under_way(stage: Stage) -> None:
    pool = await served(stage)
    queue = await taken(stage, pool)
    await claim_one(pool)
    (tracking,) = await queue.track([("u", "mu", "P", "g", "h")])
    await submit(pool, [entry("u", token=tracking.token, high=True)])
    found = await explain(stage, "mu")
    assert (found.state, found.until_ms) == ("QUEUED", stage.now_ms + HTTP_TIMEOUT_MS)
    assert "mg0" in found.waits_for


async def test_a_lapsed_lease_names_who_had_it(stage: Stage) -> None:
    pool = await served(stage)
    await taken(stage, pool)
    await claim_one(pool, worker="gone")
    stage.advance(TTL_MS)
    found = await explain(stage, "g")
    assert found.state == "LAPSED"
    assert any("gone" in sentence for sentence in found.details)


async def test_a_group_that_waits_in_place_names_its_tries_and_its_time(stage: Stage) -> None:
    pool = await served(stage)
    await taken(stage, pool)
    for _ in range(2):
        claimed = await claim_one(pool)
        await settle(pool, Settlement("g", claimed.epoch, [], in_place(1_000)))
        stage.advance(1_000)
    claimed = await claim_one(pool)
    await settle(pool, Settlement("g", claimed.epoch, [], "7000"))
    found = await explain(stage, "mg0")
    assert (found.state, found.until_ms) == ("WAITING", stage.now_ms + 7_000)
    assert "Message mg0 failed 2 times in place." in found.details
    stage.advance(7_000)
    assert (await explain(stage, "mg0")).state == "READY", "its time has come"


async def test_a_group_that_rests_without_a_failure_says_so(stage: Stage) -> None:
    pool = await served(stage)
    await taken(stage, pool)
    claimed = await claim_one(pool)
    await settle(pool, Settlement("g", claimed.epoch, [], "1000"))
    found = await explain(stage, "g")
    assert found.state == "WAITING"
    assert "busy, away, or refused" in found.waits_for


async def test_a_paused_pool_is_named_with_the_command_that_ends_it(stage: Stage) -> None:
    pool = await served(stage)
    await taken(stage, pool)
    await pause(pool)
    found = await explain(stage, "mg0")
    assert (found.state, found.waits_for) == ("PAUSED", "`fleet pool resume P`")


async def test_a_pool_without_a_worker_waits_for_one(stage: Stage) -> None:
    pool = await stage.pool()
    await stage.registry().add_pools({"P"})
    await stage.registry().beat("w", {"role": "worker", "pools": ["OTHER"]}, ttl_ms=TTL_MS)
    await taken(stage, pool)
    assert (await explain(stage, "mg0")).state == "NO_WORKER"


async def test_a_full_concurrency_is_named_with_its_numbers(stage: Stage) -> None:
    pool = await served(stage, concurrency=2)
    await submit(pool, in_groups(2, "busy"))
    assert len(await claim(pool, 9)) == 2
    await taken(stage, pool)
    found = await explain(stage, "mg0")
    assert (found.state, found.until_ms) == ("CONCURRENCY", None)
    assert any("2 groups at a time, and its concurrency is 2" in sentence for sentence in found.details)


async def test_a_rate_limit_is_named_with_its_next_permit(stage: Stage) -> None:
    pool = await served(stage, rate_limit_per_minute=1)
    await submit(pool, in_groups(1, "first"))
    await claim(pool, 9)
    await taken(stage, pool)
    stage.advance(500)
    found = await explain(stage, "mg0")
    assert (found.state, found.until_ms) == ("RATE_LIMITED", stage.now_ms - 500 + RATE_WINDOW_MS)


async def test_a_draining_pool_is_said_beside_what_its_message_waits_for(stage: Stage) -> None:
    pool = await served(stage)
    await taken(stage, pool)
    await pool.configure("2", pool_settings(draining=True))
    found = await explain(stage, "mg0")
    assert found.state == "READY"
    assert any("drains" in sentence for sentence in found.details)


async def test_a_group_in_two_pools_names_both_and_one_can_be_asked_for(stage: Stage) -> None:
    await taken(stage, await served(stage))
    other = await stage.pool("Z")
    await stage.registry().add_pools({"Z"})
    await submit(other, in_group(1))
    await pause(other)
    found = await explain(stage, "g")
    assert found.state == "READY"
    assert any("other pools too (--pool): Z" in sentence for sentence in found.details)
    assert (await explain(stage, "g", pool="Z")).state == "PAUSED"
    assert (await explain(stage, "mg0", pool="Z")).state == "UNKNOWN"


async def test_an_open_breaker_is_named_with_its_time(stage: Stage) -> None:
    pool = await served(stage)
    await taken(stage, pool)
    breakers = SharedBreakers(stage.client, now_ms=str(stage.now_ms))
    await breakers.open("http://127.0.0.1", "w", for_ms=5_000)
    until = at(stage.now_ms + 5_000)
    words = f"The circuit breaker of http://127.0.0.1 is open, and will be probed {until}."
    assert words in (await explain(stage, "mg0")).details
    stage.advance(5_000)
    assert any("half-open" in sentence for sentence in (await explain(stage, "mg0")).details)
    await breakers.reset_all()
    assert not any("breaker" in sentence for sentence in (await explain(stage, "mg0")).details)


# Between the queue and a pool ----------------------------------------------------------------------


async def test_a_tracked_message_in_no_pool_waits_for_a_takeover(stage: Stage) -> None:
    await served(stage)
    queue = await stage.queue()
    await queue.track([("1", "m1", "P", "g", "h")])
    found = await explain(stage, "m1")
    assert found.state == "TRACKED"
    assert "Nobody owns queue q at the moment." in found.details


async def test_an_outcome_in_an_outbox_is_on_its_way(stage: Stage) -> None:
    pool = await served(stage)
    await taken(stage, pool)
    await settle(pool, settlement(await claim_one(pool)))
    assert (await explain(stage, "mg0")).state == "SETTLED"


@pytest.mark.parametrize(("verdict", "state"), [(ACK, "ACKING"), (nack(1), "NACKING")])
async def test_a_settled_message_waits_for_its_queues_owner(stage: Stage, verdict: str, state: str) -> None:
    pool = await served(stage)
    queue = await taken(stage, pool)
    claimed = await claim_one(pool)
    await settle(pool, settlement(claimed, verdict=verdict))
    await queue.report([unpack_item(outbox_item(claimed.entries[0], verdict))[1]])
    found = await explain(stage, "mg0")
    assert found.state == state
    assert "owner of queue q" in found.waits_for


async def test_a_dead_letter_says_why_it_is_dead(stage: Stage) -> None:
    pool = await served(stage)
    await taken(stage, pool)
    view = await groups.group(stage.client, "P", "g")
    assert view is not None
    letter = skipped(view.head, pool="P")
    by_hand = PoolByHand(stage.client, "P")
    done = await by_hand.skip(view.head, letter)
    await by_hand.report(view.head, letter, done.operator)
    queue = await stage.queue()
    await queue.untrack([("g0", view.head.token)])
    for subject in ("mg0", "g0", "g"):
        found = await explain(stage, subject)
        assert found.state == "DEAD", subject
        assert "skipped by an operator" in found.details[0]
