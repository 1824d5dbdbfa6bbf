"""The routing of seed 000, section 6: what becomes of each message of a batch, on a real Redis."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fleet.config.router import effective_capacity
from fleet.errors import SourceUnavailable
from fleet.message import DEFAULT_GROUP, DEFAULT_POOL
from fleet.sources.base import Received
from fleet.state.entry import ACK, nack, outbox_item, unpack_item
from fleet.state.keys import PoolKeys, QueueKeys
from fleet.state.pool import Claim, Pool, PoolSettings, Settlement
from fleet.state.queue import Tracking
from tests.acceptance.intake import Intake, an_intake, received
from tests.servers.local import RedisServer
from tests.waiting import eventually


async def _claim(pool: Pool, want: int = 50) -> list[Claim]:
    return (await pool.exchange("w", ttl_ms=60_000, want=want, chunk=50)).claims


async def _apply(intake: Intake) -> None:
    """Let what is settled reach the source."""
    applying = asyncio.create_task(intake.acknowledger.run())

    async def is_applied() -> bool:
        intake.acknowledger.wake.set()
        return not await intake.queue.settled_count()

    await eventually(is_applied, within_s=10)
    intake.acknowledger.stop()
    await applying


async def _deliver(intake: Intake, pool: Pool) -> None:
    """The one message of the pool, well, up to its ack at the source."""
    (claimed,) = await _claim(pool)
    (entry,) = claimed.entries
    item = outbox_item(entry, ACK)
    await pool.exchange("w", ttl_ms=60_000, call=1, settlements=[Settlement(claimed.lane, claimed.epoch, [item])])
    await intake.queue.report([(entry.broker_id, entry.token, ACK)])
    await _apply(intake)


async def test_a_redelivery_of_what_is_under_way_swaps_its_handle_and_is_acked_with_the_new_one(
    redis_server: RedisServer,
) -> None:
    async with an_intake(redis_server.url) as intake:
        pool = await intake.pool("P")
        await intake.admission.admit([received("a", "first")])
        await intake.admission.admit([received("a", "second")])
        assert (intake.source.acked, intake.source.nacked) == ([], {})
        await _deliver(intake, pool)
        assert intake.source.acked == ["second"]
        assert await intake.queue.tracked_count() == 0


async def test_an_ack_under_expired_handles_is_done_when_the_message_shows_under_one_that_is_not(
    redis_server: RedisServer,
) -> None:
    async with an_intake(redis_server.url) as intake:
        pool = await intake.pool("P")
        intake.source.expired = {"first", "second"}
        await intake.admission.admit([received("a", "first")])
        await _deliver(intake, pool)
        for handle, acked, remembered in (("second", [], 1), ("third", ["third"], 0)):
            await intake.admission.admit([received("a", handle)])
            assert (intake.source.acked, await intake.queue.tracked_count()) == (acked, remembered)
        assert await _claim(pool) == []


async def test_a_copy_that_somebody_queued_again_is_acked_and_the_original_goes_on(redis_server: RedisServer) -> None:
    async with an_intake(redis_server.url) as intake:
        pool = await intake.pool("P")
        await intake.admission.admit([received("a")])
        await intake.admission.admit([received("b", id="a")])
        assert intake.source.acked == ["handle-b"]
        assert [entry.broker_id for claim in await _claim(pool) for entry in claim.entries] == ["a"]


async def test_duplicates_inside_a_batch_are_told_apart_too(redis_server: RedisServer) -> None:
    async with an_intake(redis_server.url) as intake:
        pool = await intake.pool("P")
        await intake.admission.admit([received("a"), received("b", id="a"), received("a", "newer")])
        assert intake.source.acked == ["handle-b"]
        assert [entry.broker_id for claim in await _claim(pool) for entry in claim.entries] == ["a"]
        (tracked,) = await intake.queue.tracked(["a"])
        assert tracked is not None
        assert tracked.handle == "newer"


async def test_a_pool_without_room_for_its_share_of_the_batch_takes_none_of_it(redis_server: RedisServer) -> None:
    async with an_intake(redis_server.url, pools=("P", "ROOMY")) as intake:
        full, roomy = await intake.pool("P", capacity=50), await intake.pool("ROOMY")
        await intake.admission.admit([received(f"x{i}") for i in range(40)])
        batch = [received(f"y{i}", messageGroupId=f"g{i % 3}") for i in range(11)]
        await intake.admission.admit([*batch, received("z", poolCode="ROOMY")])
        assert intake.source.nacked == {f"handle-y{i}": 1_000 for i in range(11)}
        assert list(intake.source.nacked) == [f"handle-y{i}" for i in range(11)], "handed back in order"
        assert await full.room() == 10
        assert await roomy.room() == 199, "another pool of the batch is not touched by it"
        assert await intake.queue.tracked_count() == 41, "what goes back is tracked no more"
        assert await intake.warned() == [("QUEUE_FULL", "WARN")]


async def test_a_batch_that_was_asked_for_before_the_concurrency_was_lowered_does_not_go_back(
    redis_server: RedisServer,
) -> None:
    async with an_intake(redis_server.url) as intake:
        pool = await intake.pool("P", concurrency=8, capacity=effective_capacity(8))
        await intake.admission.admit([received(f"x{i}") for i in range(100)])
        room = await pool.room()
        await pool.configure("2", PoolSettings(2, effective_capacity(2)))
        await intake.admission.admit([received(f"y{i}") for i in range(room)])
        assert intake.source.nacked == {}
        assert await intake.warned() == []
        assert await pool.room() == 0, "more is asked for again"


async def test_what_names_an_unknown_pool_goes_to_the_default_pool_with_a_warning(redis_server: RedisServer) -> None:
    async with an_intake(redis_server.url) as intake:
        await intake.pool("P")
        default = await intake.pool(DEFAULT_POOL)
        await intake.admission.admit([received("a", poolCode="NOWHERE"), received("b", poolCode="")])
        assert sorted(e.broker_id for claim in await _claim(default) for e in claim.entries) == ["a", "b"]
        assert set(await intake.warned()) == {("ROUTING", "WARN")}
        assert intake.counts["default_pool"] == 2


async def test_messages_without_a_group_share_one_and_come_one_at_a_time(redis_server: RedisServer) -> None:
    async with an_intake(redis_server.url) as intake:
        pool = await intake.pool("P")
        await intake.admission.admit(
            [received("a"), received("b", messageGroupId=None), received("c", messageGroupId="")]
        )
        (claimed,) = await _claim(pool)
        assert claimed.lane == DEFAULT_GROUP == "__DEFAULT__"
        assert [entry.broker_id for entry in claimed.entries] == ["a", "b", "c"]


async def test_a_whole_batch_is_routed_by_the_pools_there_were_at_its_start(redis_server: RedisServer) -> None:
    pools = ["P", "LATE"]
    async with an_intake(redis_server.url, pools=pools) as intake:
        early, late = await intake.pool("P"), await intake.pool("LATE")
        track = intake.queue.track

        async def track_while_a_pool_goes(messages: Any, **more: Any) -> list[Tracking]:
            pools.remove("LATE")
            return await track(messages, **more)

        intake.queue.track = track_while_a_pool_goes  # type: ignore[method-assign]
        await intake.admission.admit([received("a"), received("b", poolCode="LATE")])
        assert [await pool.room() for pool in (early, late)] == [199, 199]


async def test_a_batch_has_an_id_of_its_own(redis_server: RedisServer) -> None:
    async with an_intake(redis_server.url) as intake:
        pool = await intake.pool("P")
        for batch in (("a", "b"), ("c", "d")):
            await intake.admission.admit([received(i) for i in batch])
        (claimed,) = await _claim(pool)
        first, second, third, fourth = [entry.batch for entry in claimed.entries]
        assert first == second != third == fourth


async def test_outcomes_wait_for_a_source_that_is_away_and_are_applied_when_it_is_back(
    redis_server: RedisServer,
) -> None:
    async with an_intake(redis_server.url) as intake:
        pool = await intake.pool("P")
        await intake.admission.admit([received("a"), received("b", messageGroupId="other")])
        outcomes = {"a": ACK, "b": nack(30_000)}
        for claimed in await _claim(pool):
            (entry,) = claimed.entries
            await intake.queue.report([unpack_item(outbox_item(entry, outcomes[entry.broker_id]))[1]])
        refusals = {"ack": 2, "nack": 2}
        for name in refusals:
            call = getattr(intake.source, name)

            async def refused_at_first(held: Any, name: str = name, call: Any = call) -> list[bool]:
                refusals[name] -= 1
                if refusals[name] >= 0:
                    raise SourceUnavailable
                return list(await call(held))

            setattr(intake.source, name, refused_at_first)
        running = asyncio.create_task(intake.acknowledger.run())

        async def is_done() -> bool:
            return not await intake.queue.tracked_count() + await intake.queue.settled_count()

        await eventually(is_done, within_s=10)
        intake.acknowledger.stop()
        await running
        assert refusals == {"ack": -1, "nack": -1}
        assert (intake.source.acked, intake.source.nacked) == (["handle-a"], {"handle-b": 30_000})


async def test_a_body_that_cannot_be_read_is_acked_and_kept(redis_server: RedisServer) -> None:
    async with an_intake(redis_server.url) as intake:
        await intake.pool("P")
        await intake.admission.admit([Received("a", "handle-a", b"{not json"), received("b")])
        assert intake.source.acked == ["handle-a"]
        (letter,) = await intake.client.lrange(QueueKeys("q").dead, 0, -1)
        assert json.loads(letter)["body"] == "{not json"
        assert await intake.client.hlen(PoolKeys("P").entries) == 1
