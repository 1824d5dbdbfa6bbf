"""Redis has no memory left: nothing new comes in, and what frees memory goes on. On the real server only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from fleet.clock import SystemClock
from fleet.errors import StateFull
from fleet.lease import Lease
from fleet.state.connect import connected
from fleet.state.entry import ACK, nack
from fleet.state.keys import FleetKeys
from fleet.state.own_queue import Conclusion, NewMessage, OwnQueue
from fleet.state.pool import AWAY_GRACE_MS, failed
from fleet.state.queue import Queue
from tests.servers.local import RedisServer
from tests.state.stage import (
    OWNER_EPOCH,
    TTL_MS,
    Stage,
    broker_ids,
    claim_one,
    entry,
    in_group,
    in_groups,
    outboxed,
    settle,
    settlement,
    submit,
)
from tests.state.test_away import of_group


@pytest.fixture
async def stage(redis_server: RedisServer) -> AsyncIterator[Stage]:
    async with connected(redis_server.url) as client:
        yield Stage(client=client, url=redis_server.url)
        await client.config_set("maxmemory", "0")


async def fill(stage: Stage) -> int:
    """From here on Redis takes nothing; returns what it uses."""
    used = int((await stage.client.info("memory"))["used_memory"])
    await stage.client.config_set("maxmemory", str(used // 2))
    return used


def new_lease(stage: Stage, owner: str) -> Lease:
    return Lease(client=stage.client, key=FleetKeys.leader, owner=owner, ttl_ms=TTL_MS, clock=SystemClock())


async def tracked(stage: Stage, count: int) -> tuple[Queue, list[tuple[str, str]]]:
    queue = await stage.queue()
    tracking = await queue.track([(f"g{i}", f"m{i}", "P", "g", "handle " * 100) for i in range(count)])
    return queue, [(f"g{i}", t.token) for i, t in enumerate(tracking)]


async def test_a_submit_is_refused_whether_or_not_the_owner_is_known(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    await fill(stage)
    for epoch in (OWNER_EPOCH, str(int(OWNER_EPOCH) + 1)):
        with pytest.raises(StateFull, match="has no memory left"):
            await pool.submit("q", epoch, [entry("one more")])
    assert await pool.room() == 999


async def test_what_waits_for_what_is_late_is_told_to_wait_on(stage: Stage) -> None:
    pool = await stage.pool(on_failure="hold")
    await pool.expect("q", OWNER_EPOCH, [("r", "g", "q\x1fg1", "")])
    stage.advance(AWAY_GRACE_MS + 1)
    (newer,) = of_group(2)
    for _ in range(2):
        assert set((await pool.submit("q", OWNER_EPOCH, [newer])).behind) == {0}
        await fill(stage)


async def test_tracking_is_refused(stage: Stage) -> None:
    queue, _ = await tracked(stage, 1)
    await fill(stage)
    with pytest.raises(StateFull):
        await queue.track([("new", "new", "P", "g", "handle")])


async def test_settling_goes_on_with_cascade_later_release_and_the_next_claim(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(3, "a") + in_group(2, "b") + in_groups(3, "c"))
    a, b = [await claim_one(pool) for _ in range(2)]
    await fill(stage)
    failing = settlement(a, verdict=nack(1), release=failed(1, "b"))
    waiting = settlement(b, release="5000")
    answer = await settle(pool, failing, waiting, want=1)
    assert (answer.refused, len(answer.cascaded), broker_ids(answer.claims[0])) == (set(), 2, ["c0"])
    assert len(await outboxed(pool)) == 4


async def test_a_group_is_given_back_for_later_and_the_next_is_claimed(stage: Stage) -> None:
    # Without an outcome nothing is taken off a list first.
    pool = await stage.pool()
    await submit(pool, in_groups(2))
    claimed = await claim_one(pool)
    await fill(stage)
    await settle(pool, settlement(claimed, count=0, release="5000"))
    assert broker_ids(await claim_one(pool)) == ["g1"]


async def test_the_whole_way_of_a_message_frees_what_it_used(stage: Stage) -> None:
    count = 500
    pool = await stage.pool()
    queue, known = await tracked(stage, count)
    await submit(pool, in_group(count))
    claimed = await claim_one(pool, chunk=count)
    used = await fill(stage)
    done = settlement(claimed)
    await settle(pool, done, call=1)
    assert await queue.report([(broker, token, ACK) for broker, token in known]) == count
    assert await pool.trim_outbox("w", [1]) == 0
    assert len(await queue.settled(applied=0, want=count)) == count
    assert len(await queue.untrack(known)) == count
    assert await queue.settled(applied=count, want=1) == []
    assert int((await stage.client.info("memory"))["used_memory"]) < used
    assert await pool.queued([e.key for e in claimed.entries]) == ([False] * count, [])


async def test_a_worker_trims_with_its_next_exchange(stage: Stage) -> None:
    pool = await stage.pool()
    await submit(pool, in_group(1))
    done = settlement(await claim_one(pool))
    await settle(pool, done, call=1)
    await fill(stage)
    await settle(pool, trims=[1])
    assert await pool.outboxes() == set()


async def test_group_leases_are_kept(stage: Stage) -> None:
    # Or else no delivery that takes longer than a lease could ever be settled.
    pool = await stage.pool()
    await submit(pool, in_group(1))
    claimed = await claim_one(pool)
    await fill(stage)
    stage.advance(TTL_MS - 1)
    assert await pool.renew("w", [(claimed.lane, claimed.epoch)], ttl_ms=TTL_MS) == []
    stage.advance(TTL_MS - 1)
    assert (await settle(pool, settlement(claimed))).refused == set()


async def test_a_queue_keeps_its_owner_and_can_be_taken_over(stage: Stage) -> None:
    # Only a queue's owner empties its settled list.
    pool = await stage.pool()
    mine, other = new_lease(stage, "mine"), new_lease(stage, "other")
    await mine.acquire()
    await pool.fence("q", mine.epoch)
    await fill(stage)
    assert await mine.renew()
    await mine.release()
    assert await other.acquire()
    assert await pool.fence("q", other.epoch)


async def test_the_living_are_not_taken_for_dead(stage: Stage) -> None:
    registry = stage.registry()
    await registry.beat("w", {}, ttl_ms=TTL_MS)
    await fill(stage)
    stage.advance(TTL_MS)
    assert await registry.beat("w", {}, ttl_ms=TTL_MS) == {"w"}


async def test_how_full_redis_is_can_be_asked(stage: Stage) -> None:
    registry = stage.registry()
    assert await registry.memory_share() == 0.0
    await fill(stage)
    assert 1.5 < await registry.memory_share() < 2.5


async def test_a_queue_of_our_own_takes_nothing_more_and_can_be_emptied(stage: Stage) -> None:
    queue = OwnQueue(stage.client, "q")
    await queue.send([NewMessage(b"m", f"g{i}") for i in range(300)])
    await fill(stage)
    with pytest.raises(StateFull):
        await queue.send([NewMessage(b"one more")])
    taken = 0
    while shown := (await queue.receive(100, visibility_ms=60_000))[0]:
        later, *rest = [Conclusion(one.number, one.count, one.group) for one in shown]
        assert all(await queue.conclude([replace(later, what="hide", ms=50_000)]))
        assert all(await queue.conclude([*rest, later]))
        taken += len(shown)
    assert (taken, (await queue.contents()).messages) == (300, 0)
