"""The SQS source: acks, nacks and extensions, and what goes wrong."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from fleet.errors import SourceError, SourceUnavailable
from fleet.sources.base import Receipt
from fleet.sources.open import open_source
from tests.servers.scripted_sqs import Answer, ScriptedSqs, failing, fixed, refusing, scripted_sqs
from tests.unit.sources.sqs.scripted import EMPTY, Gate, a_batch, heard, messages, numbers
from tests.unit.sources.sqs.source import SOON_MS, a_source

# Settling ------------------------------------------------------------------------------------------


async def test_each_entry_of_a_batch_has_its_own_answer(sqs: ScriptedSqs) -> None:
    sqs.on("ReceiveMessage", fixed(messages(1, 2, 3)), EMPTY)
    expired = ("InvalidParameterValue", "Reason: The receipt handle has expired.", True)
    sqs.on("DeleteMessageBatch", failing({"r2": expired}))
    sqs.on("ChangeMessageVisibilityBatch", failing({"r1": ("MessageNotInflight", "", True)}))
    async with a_source(sqs.url) as source:
        batch = await a_batch(source)
        assert await source.ack(batch) == [True, False, True]
        assert await source.nack([(one, 0) for one in batch]) == [False, True, True]
        assert await source.extend(batch, 1000) == [False, True, True]


async def test_an_entry_that_sqs_failed_of_itself_is_tried_again(sqs: ScriptedSqs) -> None:
    sqs.on("ReceiveMessage", fixed(messages(1, 2, 3)), EMPTY)
    sqs.on("DeleteMessageBatch", failing({"r2": ("InternalError", "oops", False)}), failing({}))
    async with a_source(sqs.url) as source:
        assert await source.ack(await a_batch(source)) == [True, True, True]
    first, second = sqs.asked("DeleteMessageBatch")
    assert [e["ReceiptHandle"] for e in first["Entries"]] == ["r1", "r2", "r3"]
    assert [e["ReceiptHandle"] for e in second["Entries"]] == ["r2"]


@pytest.mark.parametrize("answer", [failing({"r2": ("RequestThrottled", "slower", True)}), fixed({"Successful": []})])
async def test_an_entry_that_stays_undone_is_an_error_and_no_success(sqs: ScriptedSqs, answer: Any) -> None:
    sqs.on("ReceiveMessage", fixed(messages(1, 2)), EMPTY)
    sqs.on("DeleteMessageBatch", answer)
    async with a_source(sqs.url) as source:
        with pytest.raises(SourceUnavailable):
            await source.ack(await a_batch(source))


async def test_one_entry_that_spoils_its_whole_call_spoils_no_other(sqs: ScriptedSqs) -> None:
    def answer(asked: dict[str, Any]) -> Answer:
        if any(entry["ReceiptHandle"] == "bad" for entry in asked["Entries"]):
            return 400, {"__type": "com.amazonaws.sqs#InvalidParameterValue", "message": "no"}
        return {"Successful": [{"Id": entry["Id"]} for entry in asked["Entries"]]}

    sqs.on("DeleteMessageBatch", answer)
    async with a_source(sqs.url) as source:
        assert await source.ack([Receipt("a", "1.r1"), Receipt("b", "1.bad"), Receipt("c", "1.r3")]) == [
            True,
            False,
            True,
        ]


async def test_settling_goes_ten_a_call_and_names_each_handle_once(sqs: ScriptedSqs) -> None:
    async with a_source(sqs.url) as source:
        many = [Receipt(f"m{number}", f"1.r{number}") for number in range(25)]
        assert await source.ack([*many, many[0]]) == [True] * 26
    sent = [[entry["ReceiptHandle"] for entry in asked["Entries"]] for asked in sqs.asked("DeleteMessageBatch")]
    assert sorted(len(entries) for entries in sent) == [5, 10, 10]
    assert sorted(receipt for entries in sent for receipt in entries) == sorted(f"r{number}" for number in range(25))


async def test_calls_of_one_settling_run_side_by_side(sqs: ScriptedSqs) -> None:
    together = threading.Barrier(3, timeout=10)

    def answer(asked: dict[str, Any]) -> Answer:
        together.wait()
        return {"Successful": [{"Id": entry["Id"]} for entry in asked["Entries"]]}

    sqs.on("DeleteMessageBatch", answer)
    async with a_source(sqs.url) as source:
        assert all(await source.ack([Receipt(f"m{number}", f"1.r{number}") for number in range(25)]))


@pytest.mark.parametrize(
    ("delay_ms", "seconds"), [(0, 0), (1, 1), (1000, 1), (10_001, 11), (-5, 0), (50_000_000, 43_190)]
)
async def test_a_delay_is_whole_seconds_and_within_the_twelve_hours(
    sqs: ScriptedSqs, delay_ms: int, seconds: int
) -> None:
    sqs.on("ReceiveMessage", fixed(messages(1)), EMPTY)
    async with a_source(sqs.url) as source:
        (one,) = await a_batch(source)
        await source.nack([(one, delay_ms)])
    (asked,) = sqs.asked("ChangeMessageVisibilityBatch")
    assert abs(asked["Entries"][0]["VisibilityTimeout"] - seconds) <= (2 if seconds > 43_000 else 0)


async def test_a_message_that_was_received_long_ago_is_extended_to_the_end_of_its_twelve_hours(
    sqs: ScriptedSqs,
) -> None:
    async with a_source(sqs.url) as source:
        long_ago_s = int(time.time()) - 43_000
        await source.extend([Receipt("m1", f"{long_ago_s:x}.r1")], 600_000)
    (asked,) = sqs.asked("ChangeMessageVisibilityBatch")
    assert 180 <= asked["Entries"][0]["VisibilityTimeout"] <= 190


async def test_an_older_handle_of_what_came_again_settles_nothing(sqs: ScriptedSqs) -> None:
    sqs.on(
        "ReceiveMessage", fixed(messages(1, receipt="old")), fixed(messages(1, count=2, receipt="new")), EMPTY
    )  # fmt: skip
    async with a_source(sqs.url) as source:
        (old,) = await a_batch(source)
        (new,) = await a_batch(source)
        assert await source.ack([old]) == [False]
        assert await source.nack([(old, 0)]) == [False]
        assert sqs.asked("DeleteMessageBatch") == []
        assert await source.ack([new]) == [True]


# Errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        refusing("InternalFailure", 500),
        refusing("ServiceUnavailable", 503),
        refusing("RequestThrottled", 400),
        refusing("ThrottlingException", 400),
        refusing("OverLimit", 403),
        lambda _: (200, {"Messages": 5}),
        lambda _: (502, b"<html>"),
    ],
)
async def test_a_queue_that_is_away_is_unavailable_and_tried_once(sqs: ScriptedSqs, answer: Any) -> None:
    sqs.on("ReceiveMessage", answer, EMPTY)
    async with a_source(sqs.url) as source:
        with pytest.raises(SourceUnavailable):
            await source.poll(10, SOON_MS)
        assert len(sqs.asked("ReceiveMessage")) == 1


@pytest.mark.parametrize("answer", [lambda _: (200, b"<html>"), lambda _: (502, b"<html>"), fixed({})])
async def test_what_is_no_sqs_is_unavailable(sqs: ScriptedSqs, answer: Any) -> None:
    sqs.on("GetQueueAttributes", answer)
    with pytest.raises(SourceUnavailable):
        async with a_source(sqs.url):
            pass


async def test_nobody_at_the_address_is_unavailable() -> None:
    with scripted_sqs() as gone:
        pass
    source = open_source("orders", gone.url, 30_000)
    with pytest.raises(SourceUnavailable, match="cannot be reached"):
        await source.open()
    await source.close()


async def test_an_error_of_a_time_when_nobody_polled_is_not_told_later(sqs: ScriptedSqs) -> None:
    gate = Gate((503, {"__type": "ServiceUnavailable"}))
    sqs.on("ReceiveMessage", gate, fixed(messages(1)), EMPTY)
    async with a_source(sqs.url) as source:
        assert await source.poll(10, 0) == []
        await asyncio.to_thread(sqs.wait_for, "ReceiveMessage", 1)
        with heard("ServiceUnavailable") as event:
            gate.open()
            await asyncio.wait_for(event.wait(), 10)
        assert numbers(await source.poll(10, SOON_MS)) == [1]


@pytest.mark.parametrize(
    ("code", "status", "text"),
    [
        ("QueueDoesNotExist", 400, "there is no SQS queue q"),
        ("AccessDeniedException", 400, "AccessDenied"),
        ("InvalidClientTokenId", 403, "InvalidClientTokenId"),
    ],
)
async def test_a_wrong_queue_or_wrong_credentials_are_an_error_that_says_so(
    sqs: ScriptedSqs, code: str, status: int, text: str
) -> None:
    sqs.on("GetQueueAttributes", refusing(code, status))
    with pytest.raises(SourceError, match=text) as caught:
        async with a_source(sqs.url):
            pass
    assert not isinstance(caught.value, SourceUnavailable)


async def test_no_credentials_are_an_error_that_says_so(sqs: ScriptedSqs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.sources.sqs.client._session", None)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(SourceError, match="credentials"):
        async with a_source(sqs.url):
            pass
    # They are looked for again once they are there.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    async with a_source(sqs.url):
        pass
