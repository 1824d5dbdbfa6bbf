"""A queue of our own: numbers, fences, deduplication, the clock, throwing away, a full Redis."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.errors import Fenced
from fleet.state.connect import Client
from fleet.state.engine import DEDUP_MS, PER_LANE
from fleet.state.keys import OWN_QUEUE_CHANNEL, OwnQueueKeys
from fleet.state.own_queue import Conclusion, Contents, NewMessage, OwnQueue, Shown
from fleet.state.scripts import Script
from tests.state.stage import Stage, hearing

LONG_MS = 60_000


@pytest.fixture
def queue(stage: Stage) -> OwnQueue:
    return OwnQueue(stage.client, "orders", now_ms=str(stage.now_ms))


def new(*names: str, group: str = "g", **more: object) -> list[NewMessage]:
    return [NewMessage(name.encode(), group, **more) for name in names]  # type: ignore[arg-type]


async def shown(queue: OwnQueue, most: int = 100, visibility_ms: int = LONG_MS) -> list[Shown]:
    return (await queue.receive(most, visibility_ms=visibility_ms))[0]


async def names(queue: OwnQueue, most: int = 100) -> list[str]:
    return [one.body.decode() for one in await shown(queue, most)]


def deleted(*messages: Shown) -> list[Conclusion]:
    return [Conclusion(one.number, one.count, one.group) for one in messages]


def pass_time(queue: OwnQueue, ms: int) -> None:
    queue.now_ms = str(int(queue.now_ms) + ms)


async def test_numbers_rise_also_after_a_wipe_of_redis(queue: OwnQueue) -> None:
    first = await queue.send(new("a", "b"))
    await queue.client.flushall()
    pass_time(queue, 1)
    second = await queue.send(new("c", "d"))
    numbers = [int(number) for number in first + second]
    assert numbers == sorted(set(numbers))


async def test_a_thousand_a_millisecond_keep_their_order(queue: OwnQueue) -> None:
    sent = [f"{i}" for i in range(2500)]
    for first in range(0, len(sent), 500):
        await queue.send(new(*sent[first : first + 500]))
    assert await names(queue, 3000) == sent


async def test_a_producer_that_was_replaced_is_refused_and_adds_nothing(queue: OwnQueue) -> None:
    await queue.send(new("old"), producer="feed", epoch=7)
    await queue.send(new("new"), producer="feed", epoch=8)
    with pytest.raises(Fenced):
        await queue.send(new("late"), producer="feed", epoch=7)
    await queue.send(new("anybody"))
    await queue.send(new("somebody else"), producer="other", epoch=1)
    assert await names(queue) == ["old", "new", "anybody", "somebody else"]


async def test_a_dedup_id_is_forgotten_after_its_time(queue: OwnQueue) -> None:
    assert all(await queue.send(new("first", dedup_id="job:1")))
    pass_time(queue, DEDUP_MS)
    assert await queue.send(new("again", "other", dedup_id="job:1")) != ["", ""]
    pass_time(queue, DEDUP_MS - 1)
    assert await queue.send(new("too soon", dedup_id="job:1")) == [""]
    assert await names(queue) == ["first", "again"]


async def test_dedup_ids_whose_time_is_over_are_swept(queue: OwnQueue) -> None:
    await queue.send([NewMessage(b"m", "g", f"id-{i}") for i in range(50)])
    pass_time(queue, DEDUP_MS)
    await queue.send(new("last", dedup_id="last"))
    assert await queue.client.zcard(queue.keys.seen) == 1


async def test_of_one_group_no_more_than_its_part_comes_while_others_wait(queue: OwnQueue) -> None:
    await queue.send(new(*map(str, range(200)), group="long"))
    for i in range(30):
        await queue.send(new("m", group=f"short-{i}"))
    received = await shown(queue, 100)
    assert len([one for one in received if one.group != "long"]) == 30
    assert [one.body.decode() for one in received if one.group == "long"] == [str(i) for i in range(PER_LANE)]


async def test_one_group_alone_gives_all_that_is_asked_for(queue: OwnQueue) -> None:
    await queue.send(new(*map(str, range(200))))
    assert len(await shown(queue, 150)) == 150


async def test_what_lapses_is_shown_at_that_moment_and_not_before(queue: OwnQueue) -> None:
    await queue.send(new("a", "b"))
    assert len(await shown(queue, visibility_ms=1000)) == 2
    pass_time(queue, 999)
    assert await queue.receive(10, visibility_ms=LONG_MS) == ([], 1)
    pass_time(queue, 1)
    again = await shown(queue)
    assert [(one.body, one.count) for one in again] == [(b"a", 2), (b"b", 2)]


async def test_after_the_last_one_is_deleted_nothing_remains_but_the_counter(queue: OwnQueue) -> None:
    await queue.send([*new("a", "b"), *new("c", group=""), *new("d", group="late", delay_ms=5)])
    assert await queue.conclude(deleted(*await shown(queue))) == [True] * 3
    pass_time(queue, 5)
    assert await queue.conclude(deleted(*await shown(queue))) == [True]
    assert await queue.contents() == Contents(0, 0, 0)
    keys = {key async for key in queue.client.scan_iter()}
    assert keys == {queue.keys.state}


async def test_another_group_in_a_handle_is_no_handle(queue: OwnQueue) -> None:
    await queue.send(new("a", "b"))
    one, two = await shown(queue)
    assert await queue.conclude([Conclusion(one.number, one.count, "other")]) == [False]
    assert await queue.conclude(deleted(one, two)) == [True, True]


async def test_the_depth_tells_hidden_ones_and_the_age_of_the_oldest(queue: OwnQueue) -> None:
    await queue.send(new("a", "b"))
    pass_time(queue, 2000)
    await queue.send(new("c", group="h"))
    pass_time(queue, 500)
    assert await queue.contents() == Contents(3, 0, 2500)
    (taken, *_) = await shown(queue, 1)
    assert await queue.contents() == Contents(3, 1, 2500)
    await queue.conclude(deleted(taken))
    assert (await queue.contents()).messages == 2


@pytest.mark.parametrize("count", [1, 7, 12_000])
async def test_a_purge_leaves_nothing_and_the_queue_goes_on(queue: OwnQueue, count: int) -> None:
    await queue.send([NewMessage(b"m", f"g{i % 5}" if i % 3 else "", delay_ms=i % 2) for i in range(count)])
    await shown(queue, 10)
    assert await queue.purge() == count
    assert await queue.contents() == Contents(0, 0, 0)
    assert {key async for key in queue.client.scan_iter()} == {queue.keys.state}
    await queue.send(new("next"))
    assert await names(queue) == ["next"]


async def test_what_is_sent_before_a_purge_has_cleared_everything_stays_in_its_order(
    queue: OwnQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.send([NewMessage(b"old", f"g{i % 3_000}" if i % 4 else "") for i in range(12_000)])
    taken = await shown(queue, 2)
    sent: list[str] = []
    call = Script.__call__

    async def calling(self: Script, *arguments: Any) -> Any:
        # Between any two calls: to groups that are there, to a new one, and to none.
        if self.name == "own/clear":
            for group in ("g1", f"new-{len(sent)}", ""):
                sent.append(f"{len(sent)}")
                await queue.send(new(sent[-1], group=group))
        return await call(self, *arguments)

    monkeypatch.setattr(Script, "__call__", calling)
    assert await queue.purge() == 12_000
    assert (await queue.contents()).messages == len(sent) > 9
    assert not any(await queue.conclude([Conclusion(one.number, one.count, one.group, "hide", 1) for one in taken]))
    seen: list[Shown] = []
    while batch := await shown(queue):
        seen += batch
        assert all(await queue.conclude(deleted(*batch)))
    assert sorted(one.body.decode() for one in seen) == sorted(sent)
    in_g1 = [int(one.body) for one in seen if one.group == "g1"]
    assert in_g1 == sorted(in_g1) and in_g1
    assert {key async for key in queue.client.scan_iter()} == {queue.keys.state}


async def test_a_queue_whose_name_has_braces_stays_in_one_slot(client: Client) -> None:
    queue = OwnQueue(client, "a{b}c%")
    await queue.send(new("a"))
    assert await names(queue) == ["a"]


async def test_who_waits_is_told_of_what_is_sent_or_shown_again(stage: Stage, queue: OwnQueue) -> None:
    async with hearing(stage, OWN_QUEUE_CHANNEL) as heard:
        await queue.send(new("a", "b"))
        assert await heard.since(queue.keys.state) == [], "nobody waits"
        one, *_ = await shown(queue)
        assert await shown(queue) == []
        await queue.send(new("c"))
        assert await heard.since(queue.keys.state) == [], "its group is held"
        await queue.send(new("d", "e", group="h"))
        assert await heard.since(queue.keys.state) == [queue.keys.prefix]
        await queue.send(new("f", group="i"))
        assert await heard.since(queue.keys.state) == [], "told once"
        await shown(queue)
        assert await shown(queue) == []
        await queue.conclude([Conclusion(one.number, one.count, one.group, "show")])
        assert await heard.since(queue.keys.state) == [queue.keys.prefix]


def test_each_queue_has_keys_of_its_own() -> None:
    assert OwnQueueKeys("a").state != OwnQueueKeys("b").state
    assert OwnQueueKeys("a", 1).state != OwnQueueKeys("a").state


DAY_MS = 24 * 3600 * 1000


@pytest.mark.parametrize("back_ms", [DAY_MS, 60_000])
async def test_a_clock_of_redis_that_is_set_back_prolongs_no_lease_and_no_delay(queue: OwnQueue, back_ms: int) -> None:
    await queue.send(new("leased"))
    await queue.send(new("delayed", group="other", delay_ms=10_000))
    assert await names(queue) == ["leased"]
    pass_time(queue, -back_ms)
    await queue.send(new("new", group="new"))
    assert (await names(queue), (await queue.contents()).hidden) == (["new"], 3)
    pass_time(queue, 9_999)
    assert await names(queue) == []
    pass_time(queue, 1)
    assert await names(queue) == ["delayed"]
    pass_time(queue, LONG_MS - 10_000)
    assert await names(queue) == ["leased", "new"]


async def test_a_delay_that_was_asked_for_is_kept_in_full(queue: OwnQueue) -> None:
    await queue.send(new("in two weeks", delay_ms=14 * DAY_MS))
    pass_time(queue, -DAY_MS)
    for _ in range(14 * 24):
        assert await names(queue) == []
        pass_time(queue, 3_600_000)
    assert await names(queue) == ["in two weeks"]


async def test_what_is_extended_or_given_back_after_the_clock_was_set_back_counts_from_then(queue: OwnQueue) -> None:
    await queue.send(new("a", "b", group=""))
    first, second = await shown(queue)
    pass_time(queue, -DAY_MS)
    assert await queue.conclude(
        [
            Conclusion(first.number, first.count, "", "hide", 2 * LONG_MS),
            Conclusion(second.number, second.count, "", "show", 1_000),
        ]
    ) == [True, True]
    pass_time(queue, 1_000)
    assert await names(queue) == ["b"]
    pass_time(queue, 2 * LONG_MS - 1_001)
    assert "a" not in await names(queue)
    pass_time(queue, 1)
    assert await names(queue) == ["a"]


async def test_ages_and_dedup_ids_go_by_the_queues_own_time(queue: OwnQueue) -> None:
    await queue.send(new("a", dedup_id="once"))
    pass_time(queue, 5_000)
    await shown(queue, 0)
    pass_time(queue, -DAY_MS)
    assert (await queue.contents()).oldest_ms == 5_000
    await shown(queue, 0)  # goes on from here: nobody knows for how long the clock had been set back
    pass_time(queue, DEDUP_MS - 5_001)
    assert await queue.send(new("b", dedup_id="once")) == [""]
    pass_time(queue, 1)
    assert await queue.send(new("c", dedup_id="once")) != [""]


async def test_people_are_told_times_of_redis(queue: OwnQueue) -> None:
    (number,) = await queue.send(new("a", delay_ms=10_000))
    pass_time(queue, -DAY_MS)
    await shown(queue)
    assert (await queue.standing(number)).visible_at_ms == int(queue.now_ms) + 10_000
