"""What was given back to a queue that shows messages only to a receiver: remembered until it shows them."""

from __future__ import annotations

import pytest

from fleet.state import queue as module
from fleet.state.queue import Hidden, Queue
from fleet.words import at
from tests.state.explaining import explain, served
from tests.state.stage import Stage


async def give_back(stage: Stage, queue: Queue, *ids: str, delay_ms: int, group: str = "g") -> None:
    tracked = await queue.track([(f"b{id_}", id_, "P", group, "h") for id_ in ids])
    known = [(f"b{id_}", one.token) for id_, one in zip(ids, tracked, strict=True)]
    assert len(await queue.untrack(known, hidden_ms=dict.fromkeys([b for b, _ in known], delay_ms))) == len(ids)


async def remembered(queue: Queue) -> list[Hidden]:
    return sorted([one async for page in queue.hidden() for one in page], key=lambda one: one.message_id)


async def test_a_message_given_back_with_a_delay_is_delayed_until_that_is_over(stage: Stage) -> None:
    await served(stage)
    queue = await stage.queue()
    await give_back(stage, queue, "m1", delay_ms=30_000)
    for subject in ("m1", "bm1", "g"):
        found = await explain(stage, subject)
        assert (found.state, found.waits_for) == ("DELAYED", "its delay to end"), subject
        assert found.until_ms == stage.now_ms + 30_000
        assert any(f"to show m1 again {at(stage.now_ms + 30_000)}." in sentence for sentence in found.details)
    assert (await explain(stage, "m1", pool="OTHER")).state == "UNKNOWN"
    stage.advance(30_000)
    assert (await explain(stage, "m1")).state == "UNKNOWN"


async def test_a_group_is_delayed_until_the_first_of_its_messages_is_shown(stage: Stage) -> None:
    await served(stage)
    queue = await stage.queue()
    await give_back(stage, queue, "m1", "m2", delay_ms=30_000)
    await give_back(stage, queue, "m3", delay_ms=10_000)
    await give_back(stage, queue, "other", delay_ms=1_000, group="h")
    found = await explain(stage, "g")
    assert (found.state, found.until_ms) == ("DELAYED", stage.now_ms + 10_000)
    assert found.details[0].startswith("3 messages of it were taken for pool P and given back to queue q")


async def test_one_that_is_taken_again_is_where_it_is_now(stage: Stage) -> None:
    await served(stage)
    queue = await stage.queue()
    await give_back(stage, queue, "m1", delay_ms=30_000)
    await queue.track([("another", "m1", "P", "g", "h")])
    assert (await explain(stage, "m1")).state == "TRACKED"


async def test_what_is_acked_or_comes_again_at_once_is_not_remembered(stage: Stage) -> None:
    queue = await stage.queue()
    await give_back(stage, queue, "m1", delay_ms=0)
    (tracking,) = await queue.track([("b2", "m2", "P", "g", "h")])
    await queue.untrack([("b2", tracking.token)])
    await queue.untrack([("b3", "not its token")], hidden_ms={"b3": 9_000})
    assert await remembered(queue) == []
    assert await stage.client.exists(queue.keys.delayed) == 0


async def test_no_more_are_remembered_than_the_limit_and_none_for_longer_than_its_delay(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HIDDEN_REMEMBERED", 3)
    queue = await stage.queue()
    for i in range(1, 6):
        await give_back(stage, queue, f"m{i}", delay_ms=i * 10_000)
    assert [one.message_id for one in await remembered(queue)] == ["m3", "m4", "m5"]
    assert 40_000 < await stage.client.pttl(queue.keys.delayed) <= 50_000
    stage.advance(35_000)
    await give_back(stage, queue, "m6", delay_ms=10_000)
    assert await stage.client.zcard(queue.keys.delayed) == 3, "m3 is swept"
    assert [(one.message_id, one.until_ms) for one in await remembered(queue)] == [
        ("m4", stage.now_ms + 5_000),
        ("m5", stage.now_ms + 15_000),
        ("m6", stage.now_ms + 10_000),
    ]
