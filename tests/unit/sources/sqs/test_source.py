"""The SQS source: what it receives, hands over and gives back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from fleet.errors import SourceUnavailable
from fleet.sources.base import Receipt
from tests.clocks import HandClock
from tests.servers.scripted_sqs import Answer, ScriptedSqs, fixed, message
from tests.unit.sources.sqs.scripted import EMPTY, Gate, messages, numbers
from tests.unit.sources.sqs.source import SOON_MS, a_source

# Receiving -----------------------------------------------------------------------------------------


async def test_a_receive_asks_as_the_seed_says(sqs: ScriptedSqs) -> None:
    async with a_source(sqs.url, visibility_ms=90_500) as source:
        assert await source.poll(500, 0) == []
        (asked,) = await asyncio.to_thread(sqs.wait_for, "ReceiveMessage", 1)
        assert (asked["WaitTimeSeconds"], asked["MaxNumberOfMessages"], asked["VisibilityTimeout"]) == (20, 10, 91)
        assert source.visibility_ms == 91_000


async def test_opening_and_asking_for_the_depth_take_nothing(sqs: ScriptedSqs) -> None:
    async with a_source(sqs.url) as source:
        depth = await source.depth()
        assert (depth.waiting, depth.invisible, depth.oldest_s) == (7, 3, None)
    assert sqs.asked("ReceiveMessage") == []


async def test_a_poll_ends_in_its_time_and_the_next_gets_what_its_receive_brings(sqs: ScriptedSqs) -> None:
    gate = Gate(messages(1, 2))
    sqs.on("ReceiveMessage", gate, EMPTY)
    async with a_source(sqs.url) as source:
        started = time.monotonic()
        assert await source.poll(10, 50) == []
        assert await source.poll(10, 50) == []
        assert 0.09 < time.monotonic() - started < 2
        gate.open()
        assert numbers(await source.poll(10, SOON_MS)) == [1, 2]
        assert len(sqs.asked("ReceiveMessage")) == 1


async def test_what_comes_after_a_poll_was_cancelled_is_handed_to_the_next(sqs: ScriptedSqs) -> None:
    gate = Gate(messages(1, 2, 3))
    sqs.on("ReceiveMessage", gate, EMPTY)
    async with a_source(sqs.url) as source:
        poll = asyncio.create_task(source.poll(10, SOON_MS))
        await asyncio.to_thread(sqs.wait_for, "ReceiveMessage", 1)
        poll.cancel()
        gate.open()
        with pytest.raises(asyncio.CancelledError):
            await poll
        assert numbers(await source.poll(2, SOON_MS)) == [1, 2]
        assert numbers(await source.poll(2, SOON_MS)) == [3]


@pytest.mark.parametrize(("most", "wants"), [(25, [10, 10, 5]), (10, [10]), (3, [3]), (500, [10, 10, 10, 10])])
async def test_all_receives_together_ask_for_no_more_than_the_poll(
    sqs: ScriptedSqs, most: int, wants: list[int]
) -> None:
    async with a_source(sqs.url, connections=4) as source:
        assert await source.poll(most, 0) == []
        await asyncio.to_thread(sqs.wait_for, "ReceiveMessage", len(wants))
        assert await source.poll(most, 50) == []
        assert sorted(asked["MaxNumberOfMessages"] for asked in sqs.asked("ReceiveMessage")) == sorted(wants)


async def test_what_waits_to_be_handed_over_is_not_asked_for_again(sqs: ScriptedSqs) -> None:
    sqs.on("ReceiveMessage", fixed(messages(*range(10))), EMPTY)
    async with a_source(sqs.url) as source:
        assert await source.poll(10, 0) == []
        assert len(await source.poll(4, SOON_MS)) == 4
        assert len(await source.poll(4, SOON_MS)) == 4
        assert len(await source.poll(2, SOON_MS)) == 2
        assert len(sqs.asked("ReceiveMessage")) == 1


async def test_after_a_full_batch_the_next_receive_travels_while_the_caller_works(sqs: ScriptedSqs) -> None:
    sqs.on("ReceiveMessage", fixed(messages(*range(10))), fixed(messages(*range(10, 20))), EMPTY)
    async with a_source(sqs.url) as source:
        assert len(await source.poll(500, SOON_MS)) == 10
        await asyncio.to_thread(sqs.wait_for, "ReceiveMessage", 2)
        assert numbers(await source.poll(500, SOON_MS)) == list(range(10, 20))


async def test_a_connection_rests_after_a_part_of_a_batch_and_not_after_a_long_poll_that_brought_nothing(
    sqs: ScriptedSqs,
) -> None:
    spans: list[tuple[float, float]] = []

    def timed(answer: Answer, took_s: float = 0.0) -> Any:
        def answering(_: dict[str, Any]) -> Answer:
            began = time.monotonic()
            threading.Event().wait(took_s)
            spans.append((began, time.monotonic()))
            return answer

        return answering

    sqs.on("ReceiveMessage", timed(messages(1)), timed({}, 0.2), timed({}), timed(messages(2)), EMPTY)
    async with a_source(sqs.url) as source:
        assert numbers(await source.poll(10, SOON_MS)) == [1]
        assert numbers(await source.poll(10, SOON_MS)) == [2]
    part, long_poll, hasty, last = spans
    assert long_poll[0] - part[1] >= 0.1
    assert hasty[0] - long_poll[1] < 0.1
    # An empty answer that nobody waited for: without a rest it would spin. A request may be seen some ms after it was
    # sent, so between two that are seen there may be less than between two that are sent.
    assert last[0] - hasty[0] >= 0.05


async def test_what_was_kept_past_its_visibility_timeout_is_not_handed_over(sqs: ScriptedSqs) -> None:
    sqs.on("ReceiveMessage", fixed(messages(*range(10))), EMPTY)
    clock = HandClock()
    async with a_source(sqs.url, clock=clock, long_poll_s=1) as source:
        assert await source.poll(10, 0) == []
        assert numbers(await source.poll(4, SOON_MS)) == [0, 1, 2, 3]
        assert numbers(await source.poll(4, 0)) == [4, 5, 6, 7]
        clock.now_ms += 30_000
        assert await source.poll(4, 0) == []


async def test_the_group_is_the_one_of_the_queue_or_of_the_attribute(sqs: ScriptedSqs) -> None:
    named = message(2) | {"MessageAttributes": {"Fleet-Group": {"DataType": "String", "StringValue": "größe 1"}}}
    told = [message(1, group="g"), named, message(3), message(4, group="fleet.none.1")]
    sqs.on("ReceiveMessage", fixed({"Messages": told}), EMPTY)
    async with a_source(sqs.url) as source:
        batch = await source.poll(10, SOON_MS)
        assert [one.group for one in batch] == ["g", "größe 1", None, None]
        assert batch[0].body == b"body 1"


# Closing -------------------------------------------------------------------------------------------


async def test_a_close_gives_back_what_was_not_handed_over(sqs: ScriptedSqs) -> None:
    sqs.on("ReceiveMessage", fixed(messages(*range(10))), EMPTY)
    async with a_source(sqs.url) as source:
        assert await source.poll(10, 0) == []
        assert numbers(await source.poll(3, SOON_MS)) == [0, 1, 2]
    (asked,) = sqs.asked("ChangeMessageVisibilityBatch")
    assert [(e["ReceiptHandle"], e["VisibilityTimeout"]) for e in asked["Entries"]] == [
        (f"r{number}", 0) for number in range(3, 10)
    ]


async def test_a_close_waits_for_no_long_poll_and_what_that_brings_is_given_back(sqs: ScriptedSqs) -> None:
    gate = Gate(messages(1, 2))
    sqs.on("ReceiveMessage", gate, EMPTY)
    async with a_source(sqs.url) as source:
        assert await source.poll(10, 0) == []
        await asyncio.to_thread(sqs.wait_for, "ReceiveMessage", 1)
        started = time.monotonic()
    assert time.monotonic() - started < 1
    gate.open()
    (asked,) = await asyncio.to_thread(sqs.wait_for, "ChangeMessageVisibilityBatch", 1)
    assert [(e["ReceiptHandle"], e["VisibilityTimeout"]) for e in asked["Entries"]] == [("r1", 0), ("r2", 0)]


async def test_a_close_is_quick_when_the_queue_does_not_answer(sqs: ScriptedSqs) -> None:
    never = Gate({})
    sqs.on("ReceiveMessage", fixed(messages(*range(10))), never)
    sqs.on("ChangeMessageVisibilityBatch", never)
    async with a_source(sqs.url) as source:
        assert len(await source.poll(10, SOON_MS)) == 10
        assert await source.poll(10, 0) == []
        started = time.monotonic()
    assert time.monotonic() - started < 1
    never.open()


async def test_a_waiting_poll_ends_when_its_source_is_closed(sqs: ScriptedSqs) -> None:
    async with a_source(sqs.url) as source:
        poll = asyncio.create_task(source.poll(10, SOON_MS))
        await asyncio.to_thread(sqs.wait_for, "ReceiveMessage", 1)
    assert await poll == []
    for call in (source.poll(1, 0), source.ack([Receipt("m1", "1.r1")]), source.depth()):
        with pytest.raises(SourceUnavailable, match="not open"):
            await call


def test_a_process_ends_while_a_long_poll_is_under_way(sqs: ScriptedSqs) -> None:
    program = f"""
import asyncio
from fleet.sources.open import open_source
async def main():
    source = open_source("orders", "{sqs.url}", 30_000)
    await source.open()
    await source.poll(10, 100)
    await source.close()
asyncio.run(main())
"""
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
    assert time.monotonic() - started < 15
    assert len(sqs.asked("ReceiveMessage")) == 1
