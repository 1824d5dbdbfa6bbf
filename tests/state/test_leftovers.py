"""Every key is bounded: once all is delivered and acked, only the listed families remain."""

from __future__ import annotations

from fnmatch import fnmatchcase

from fleet.state.entry import Entry, nack
from fleet.state.keys import FAMILIES
from fleet.state.pool import Pool, failed
from fleet.state.queue import Queue
from tests.state.stage import (
    OWNER_EPOCH,
    TTL_MS,
    Stage,
    claim,
    drain,
    entry,
    in_group,
    in_groups,
    settle,
    settlement,
    submit,
)


async def taken(queue: Queue, pool: Pool, messages: list[Entry]) -> None:
    tracked = await queue.track([(m.broker_id, m.message_id, pool.code, m.group, "handle") for m in messages])
    for message, tracking in zip(messages, tracked, strict=True):
        message.token = tracking.token
    await submit(pool, messages, queue=queue.name)


async def applied(queue: Queue, pool: Pool) -> None:
    """What workers and the owner do with settled outcomes."""
    for worker in await pool.outboxes():
        calls = await pool.outbox(worker)
        fields = [item.split("\x1f") for items in calls.values() for item in items]
        await queue.report([(broker, token, verdict) for _, broker, token, verdict in fields])
        await pool.trim_outbox(worker, list(calls))
    outcomes = await queue.settled(applied=0, want=10_000)
    await queue.untrack([(o.broker_id, o.token) for o in outcomes])
    assert await queue.settled(applied=len(outcomes), want=1) == []


async def test_after_everything_is_acked_only_the_listed_families_remain(stage: Stage) -> None:
    pool, queue = await stage.pool(), await stage.queue()
    await taken(queue, pool, in_groups(40) + in_group(5) + [entry("h", "g1", high=True), entry("i", "i", high=True)])
    # A failure with siblings in both tiers, a group that waits, a worker that dies, a renewal.
    claims = await claim(pool, 4, chunk=2)
    await settle(pool, settlement(claims[0], count=1, verdict=nack(1), release=failed(1, "b")))
    await settle(pool, settlement(claims[1], count=0, release="100"))
    await pool.renew("w", [(claims[2].lane, claims[2].epoch)], ttl_ms=2 * TTL_MS)
    stage.advance(3 * TTL_MS)
    await drain(pool, worker="another")
    await applied(queue, pool)
    remaining = await stage.keys()
    assert {k for k in remaining if not any(fnmatchcase(k, family) for family in FAMILIES)} == set()


async def test_a_failure_that_takes_a_high_priority_sibling_leaves_no_other_key(stage: Stage) -> None:
    pool, queue = await stage.pool(), await stage.queue()
    await taken(queue, pool, [entry("1")])
    (claimed,) = await claim(pool)
    await taken(queue, pool, [entry("2", high=True)])
    await settle(pool, settlement(claimed, verdict=nack(1), release=failed(1, "b")))
    await applied(queue, pool)
    remaining = await stage.keys()
    assert {k for k in remaining if not any(fnmatchcase(k, family) for family in FAMILIES)} == set()


async def test_a_pool_with_a_rate_leaves_only_a_window_that_expires(stage: Stage) -> None:
    pool, queue = await stage.pool(rate_limit_per_minute=50), await stage.queue()
    await taken(queue, pool, in_groups(20))
    await drain(pool)
    await applied(queue, pool)
    assert await stage.client.pttl(pool.keys.rate) > 0
    assert await stage.client.exists(pool.keys.entries, pool.keys.leases, pool.keys.owners, pool.keys.ready) == 0


async def test_a_takeover_and_a_refused_submit_leave_nothing(stage: Stage) -> None:
    pool, queue = await stage.pool(), await stage.queue()
    await pool.fence("q", OWNER_EPOCH)
    assert (await pool.submit("q", "1", in_group(3))).tag == "stale"
    (tracking,) = await queue.track([("1", "m1", "P", "g", "handle")])
    assert set(await queue.untrack([("1", tracking.token)], only_unsettled=True)) == {"1"}
    assert await stage.keys() == {pool.keys.settings, pool.keys.epochs, queue.keys.owner}
