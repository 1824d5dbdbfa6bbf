"""Seed 000, sections 5 and 15 to 17: which consumers are well, how one that is not is replaced, and how they end."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from coordinator import phantoms
from fleet.process import Identity
from fleet.sources.base import Received
from fleet.state.connect import Client
from fleet.state.keys import PoolKeys, QueueKeys
from fleet.state.queue import Queue
from fleet.state.registry import Registry
from fleet.state.scripts import SEP
from fleet.state.warnings import Warnings
from tests.integration.owning import TTL_MS, HeldSource, an_owner
from tests.servers.local import RedisServer
from tests.waiting import eventually

RESTARTED, FAILED = ("CONSUMER_RESTART", "WARN"), ("CONSUMER_RESTART_FAILED", "CRITICAL")


def in_turn(*kinds: Callable[[], HeldSource]) -> Callable[[], HeldSource]:
    """Sources of these kinds, one after the other; the last kind from then on."""
    left = list(kinds)
    return lambda: (left.pop(0) if len(left) > 1 else left[0])()


def unopened() -> HeldSource:
    source = HeldSource()
    source.cannot_open = "its broker is away"
    return source


def stubborn() -> HeldSource:
    source = HeldSource()
    source.ignores_cancel = True
    return source


def quick() -> HeldSource:
    source = HeldSource()
    source.visibility_ms = 200
    return source


@contextmanager
def asked_of(client: Client) -> Iterator[Counter[str]]:
    """How often each command was sent."""
    asked: Counter[str] = Counter()
    execute = client.execute_command

    def counted(*arguments: Any, **options: Any) -> Any:
        asked[str(arguments[0])] += 1
        return execute(*arguments, **options)

    client.execute_command = counted
    try:
        yield asked
    finally:
        client.execute_command = execute


class Prompt(HeldSource):
    """Answers at once, mostly with nothing."""

    async def poll(self, max_messages: int, wait_ms: int) -> list[Received]:
        self.polls += 1
        await asyncio.sleep(0)
        return [] if self.answers.empty() else self.answers.get_nowait()


def hanging(where: str) -> Callable[[], HeldSource]:
    def make() -> HeldSource:
        source = HeldSource()
        source.hangs_in = where
        return source

    return make


def received(broker_id: str, group: str = "g", pool: str = "P") -> Received:
    body = {"id": broker_id, "poolCode": pool, "mediationTarget": "http://127.0.0.1:9/"}
    return Received(broker_id, f"handle-{broker_id}", json.dumps(body).encode(), group)


async def test_a_consumer_is_healthy_while_it_polls_and_for_a_minute_after(redis_server: RedisServer) -> None:
    async with an_owner(redis_server.url) as owning:
        await owning.configure("q")
        await owning.polls(1)
        assert (await owning.shown()).items() >= {
            "owner": "coordinator-1", "isRunning": True, "isHealthy": True, "msSinceLastPoll": None,
        }.items(), "it never polled to an end yet"  # fmt: skip
        for polls in range(2, 6):
            owning.clock.now_ms += 59_000
            owning.sources[0].answers.put_nowait([])
            await owning.polls(polls)
            assert (await owning.shown())["isHealthy"] is True
        owning.clock.now_ms += 60_000
        row = await owning.shown()
        assert (row["isHealthy"], row["msSinceLastPoll"]) == (True, 60_000)
        owning.clock.now_ms += 1
        row = await owning.shown()
        assert (row["isRunning"], row["isHealthy"], row["msSinceLastPoll"]) == (True, False, 60_001)
        assert len(owning.sources) == 1
        assert await owning.warned() == {}


async def test_a_consumer_that_waits_for_room_is_healthy_however_long(redis_server: RedisServer) -> None:
    async with an_owner(redis_server.url) as owning:
        looks = owning.rooms.looks = asyncio.Queue()
        await owning.configure("q")
        for waits in range(1, 12):
            await eventually(lambda waits=waits: owning.rooms.waits == waits)  # type: ignore[misc]
            await owning.advance(50)
            assert (await owning.shown())["isHealthy"] is True
            looks.put_nowait(None)
        assert owning.sources[0].polls == 0
        assert len(owning.sources) == 1
        assert await owning.warned() == {}


async def test_a_consumer_that_does_not_poll_for_a_minute_is_restarted_and_no_sooner(
    redis_server: RedisServer,
) -> None:
    async with an_owner(redis_server.url) as owning:
        await owning.configure("q")
        await owning.polls(1)
        await owning.advance(60)
        owning.sources[0].answers.put_nowait([])
        await owning.polls(2)
        assert await owning.warned() == {}
        await owning.advance(60.001)
        await eventually(lambda: len(owning.sources) == 2)
        await owning.polls(1, source=1)
        assert owning.sources[0].closed
        assert (await owning.shown())["isHealthy"] is True
        assert await owning.warned() == {RESTARTED: 1}
        owning.sources[1].answers.put_nowait([received("m1")])
        await owning.polls(2, source=1)
        assert await owning.client.hlen(PoolKeys("P").entries) == 1, "the new one does its work"


async def test_a_source_that_does_not_let_itself_be_stopped_is_left_behind(redis_server: RedisServer) -> None:
    async with an_owner(redis_server.url, patience_s=0.05) as owning:
        owning.next_source = in_turn(stubborn, HeldSource)
        await owning.configure("q")
        await owning.polls(1)
        await owning.advance(60.001)
        await eventually(lambda: len(owning.sources) == 2)
        await owning.polls(1, source=1)
        assert await owning.warned() == {RESTARTED: 1}
        owning.sources[0].let_go.set()
        owning.sources[0].answers.put_nowait([received("late")])
        owning.sources[1].answers.put_nowait([received("m1")])
        await owning.polls(2, source=1)
        assert await owning.client.hkeys(QueueKeys("q").tracked) == ["m1"], "the old one still takes messages"


async def test_a_restart_that_fails_is_critical_and_tried_again(redis_server: RedisServer) -> None:
    async with an_owner(redis_server.url) as owning:
        owning.next_source = in_turn(HeldSource, unopened, unopened, HeldSource)
        await owning.configure("q")
        await owning.polls(1)
        await owning.advance(60.001)
        for tries in (2, 3):
            await eventually(lambda tries=tries: len(owning.sources) == tries and not owning.ownership.owned)  # type: ignore[misc]
            assert await owning.warned() == {RESTARTED: 1, FAILED: 1}
            await owning.advance(10)
        await owning.polls(1, source=3)
        assert (await owning.shown())["isHealthy"] is True
        assert await owning.warned() == {RESTARTED: 1, FAILED: 1}


@pytest.mark.parametrize("first", [HeldSource, hanging("close")], ids=["closes", "hangs-in-close"])
async def test_a_source_that_hangs_while_it_opens_or_closes_is_not_waited_for(
    redis_server: RedisServer, first: Callable[[], HeldSource]
) -> None:
    async with an_owner(redis_server.url, patience_s=0.05) as owning:
        owning.next_source = in_turn(first, hanging("open"), HeldSource)
        await owning.configure("q")
        await owning.polls(1)
        await owning.advance(60.001)
        await eventually(lambda: len(owning.sources) == 2 and not owning.ownership.owned)
        assert await owning.warned() == {RESTARTED: 1, FAILED: 1}
        await owning.advance(10)
        await owning.polls(1, source=2)


async def test_a_queue_that_fails_after_its_restart_went_well_is_no_failed_restart(redis_server: RedisServer) -> None:
    async with an_owner(redis_server.url) as owning:
        owning.next_source = in_turn(HeldSource, HeldSource, unopened)
        await owning.configure("q")
        await owning.polls(1)
        await owning.advance(60.001)
        await owning.polls(1, source=1)
        await owning.configure("q", visibility_s=700)
        await eventually(lambda: len(owning.sources) == 3 and not owning.ownership.owned)
        assert await owning.warned() == {RESTARTED: 1, ("QUEUE_UNAVAILABLE", "ERROR"): 1}


async def test_a_queue_that_cannot_be_opened_at_first_is_no_failed_restart(redis_server: RedisServer) -> None:
    async with an_owner(redis_server.url) as owning:
        owning.next_source = in_turn(unopened, HeldSource)
        await owning.configure("q")
        await eventually(lambda: len(owning.sources) == 1 and not owning.ownership.owned)
        assert await owning.warned() == {("QUEUE_UNAVAILABLE", "ERROR"): 1}
        assert (await owning.shown())["isRunning"] is False


async def test_the_consumer_of_a_queue_that_is_gone_is_removed_once_it_has_stopped(redis_server: RedisServer) -> None:
    async with an_owner(redis_server.url) as owning:
        await owning.configure("q")
        await owning.polls(1)
        assert set(await Registry(owning.client).queues()) == {"q"}
        await owning.configure()
        await eventually(lambda: not owning.ownership.owned and len(owning.sources) == 2)
        assert owning.ownership.consumers() == {"polls": {}, "stuck": []}
        assert all(source.closed for source in owning.sources)
        assert await Registry(owning.client).queues() == {}
        assert await owning.client.hget(QueueKeys("q").owner, "owner") in (None, "")
        assert await owning.warned() == {}


async def test_a_queue_that_did_not_change_keeps_its_consumer_and_one_that_did_gets_another(
    redis_server: RedisServer,
) -> None:
    async with an_owner(redis_server.url) as owning:
        await owning.configure("q")
        await owning.polls(1)
        await owning.configure("q", pools=("P", "ANOTHER"))
        await owning.advance(1)
        owning.sources[0].answers.put_nowait([received("m1")])
        await owning.polls(2)
        assert (len(owning.sources), owning.sources[0].closed) == (1, False)
        await owning.configure("q", pools=("P", "ANOTHER"), visibility_s=700)
        await owning.polls(1, source=1)
        assert owning.sources[0].closed


async def test_a_coordinator_that_is_switched_off_has_no_share_of_the_queues(redis_server: RedisServer) -> None:
    async with an_owner(redis_server.url) as owning:
        off = Identity.new("coordinator", prefix="off-").name
        await Registry(owning.client).beat(off, {"role": "coordinator", "name": off}, ttl_ms=TTL_MS)
        await owning.configure("a", "b")
        await owning.polls(1, source=0)
        await owning.polls(1, source=1)
        assert sorted(owning.ownership.owned) == ["a", "b"]


async def test_what_is_tracked_and_stands_nowhere_comes_again_with_a_warning(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phantoms, "EVERY_S", 0.3)
    async with an_owner(redis_server.url) as owning:
        await owning.configure("q")
        await owning.polls(1)
        (source,) = owning.sources
        source.answers.put_nowait([received("held")])
        await owning.polls(2)
        queue = Queue(owning.client, "q", epoch=owning.ownership.owned["q"].lease.epoch)
        await queue.track([("phantom", "phantom", "P", "g", "handle-phantom")])
        await eventually(lambda: bool(source.nacked))
        assert source.nacked == ["phantom"]
        assert await owning.client.hkeys(QueueKeys("q").tracked) == ["held"]
        assert await owning.warned() == {("PIPELINE_PHANTOMS", "WARN"): 1}
        (warning,) = await Warnings(owning.client).list()
        assert warning.message == "1 message of q tracked and in no pool"


async def test_what_takes_long_is_kept_invisible_again_and_again(redis_server: RedisServer) -> None:
    async with an_owner(redis_server.url) as owning:
        owning.next_source = quick
        await owning.configure("q")
        await owning.polls(1)
        source = owning.sources[0]
        source.answers.put_nowait([received("m1")])
        for times in range(1, 4):
            await owning.polls(2)
            assert source.extended.count("m1") < times
            owning.clock.now_ms += 75
            await eventually(lambda times=times: source.extended.count("m1") == times)  # type: ignore[misc]
        assert set(source.extended) == {"m1"}
        assert await owning.client.hkeys(QueueKeys("q").tracked) == ["m1"]


async def test_only_what_is_due_is_looked_at_however_much_is_under_way(redis_server: RedisServer) -> None:
    async with an_owner(redis_server.url) as owning:
        owning.next_source = quick
        await owning.configure("q", pools=("P",))
        await owning.polls(1)
        source = owning.sources[0]
        source.answers.put_nowait([received(f"old{i}", str(i)) for i in range(3)])
        await owning.polls(2)
        owning.clock.now_ms += 50
        source.answers.put_nowait([received(f"young{i}", str(i)) for i in range(30)])
        await owning.polls(3)
        with asked_of(owning.client) as asked:
            owning.clock.now_ms += 25
            await eventually(lambda: len(source.extended) == 3)
        assert sorted(source.extended) == ["old0", "old1", "old2"]
        assert asked["HSCAN"] == 0 and asked["HMGET"] <= 3, "what is young is asked for"
        # Seen again, it is as young as it ever was.
        source.answers.put_nowait([received("young0", "0")])
        await owning.polls(4)
        owning.clock.now_ms += 50
        await eventually(lambda: len(source.extended) == 3 + 29)
        assert "young0" not in source.extended


async def test_what_an_earlier_owner_left_is_extended_at_once(redis_server: RedisServer) -> None:
    async with an_owner(redis_server.url) as owning:
        owning.next_source = in_turn(quick, quick)
        await owning.configure("q")
        await owning.polls(1)
        owning.sources[0].answers.put_nowait([received("m1")])
        await owning.polls(2)
        long_ago = "1700000000000"
        *record, _tracked_ms, order = str(await owning.client.hget(QueueKeys("q").tracked, "m1")).split(SEP)
        await owning.client.hset(QueueKeys("q").tracked, "m1", SEP.join([*record, long_ago, order]))
        await owning.configure("q", visibility_s=700)
        await owning.polls(1, source=1)
        await eventually(lambda: "m1" in owning.sources[1].extended)


async def test_nothing_is_restarted_while_we_stop_or_before_there_is_a_configuration(
    redis_server: RedisServer,
) -> None:
    async with an_owner(redis_server.url) as owning:
        await owning.advance(120)
        await eventually(lambda: owning.lead.held)
        assert owning.sources == []
        await owning.configure("q")
        await owning.polls(1)
        owning.clock.now_ms += 120_000
        await owning.rounds.stop()
        assert len(owning.sources) == 1
        assert await owning.warned() == {}


async def test_a_stop_waits_so_long_and_leaves_behind_what_does_not_stop(redis_server: RedisServer) -> None:
    async with an_owner(redis_server.url, patience_s=0.05, stop_within_s=0.05) as owning:
        owning.next_source = stubborn
        await owning.configure("q")
        await owning.polls(1)
        async with asyncio.timeout(10):
            await owning.rounds.stop()
        assert await owning.client.hget(QueueKeys("q").owner, "owner") in (None, ""), "others wait for it"


async def test_what_cannot_be_handed_back_at_the_end_is_a_warning_and_keeps_nothing_else(
    redis_server: RedisServer,
) -> None:
    async with an_owner(redis_server.url) as owning:
        await owning.configure("q", pools=("A", "B"))
        await owning.polls(1)
        source = owning.sources[0]
        source.answers.put_nowait([received(f"{pool}{i}", pool=pool) for pool in "AB" for i in range(3)])
        await owning.polls(2)
        refused = iter(["its broker is away", ""])
        nack = source.nack

        async def first_refused(held):  # type: ignore[no-untyped-def]
            source.cannot_nack = next(refused)
            return await nack(held)

        source.nack = first_refused  # type: ignore[method-assign]
        await owning.rounds.stop()
        assert source.nacked == ["B0", "B1", "B2"]
        assert await owning.warned() == {("SHUTDOWN_CLEANUP_ERRORS", "WARN"): 1}


async def test_a_coordinator_outlives_sixty_revisions_while_its_queue_feeds_two_pools(
    redis_server: RedisServer,
) -> None:
    async with an_owner(redis_server.url) as owning:
        owning.next_source, owning.rooms.as_it_is = Prompt, True
        await owning.configure("q", pools=("A", "B"))
        await owning.polls(1)
        source = owning.sources[0]
        # Half of a batch is more than either of them takes: each poll asks both for their room.
        source.answers.put_nowait([received(str(i), str(i), "AB"[i % 2]) for i in range(20)])
        await owning.polls(10)
        for revision in range(60):
            polls = source.polls
            await owning.configure("q", pools=("A", "B", f"C{revision}"))
            await owning.polls(polls + 1)
        assert owning.sources == [source], "it is the same consumer still"
