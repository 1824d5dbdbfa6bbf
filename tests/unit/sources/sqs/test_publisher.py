"""The SQS publisher: what goes in a call, what is refused, and what stands behind a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fleet.errors import SourceUnavailable
from fleet.sources.base import Outgoing
from fleet.sources.open import open_publisher
from fleet.sources.sqs.entry import QueueFacts, refusal
from tests.messages import opened
from tests.servers.moto import aws_settings
from tests.servers.scripted_sqs import Answer, ScriptedSqs, all_done, failing, refusing, scripted_sqs

STANDARD = QueueFacts(is_fifo=False, most_bytes=1024 * 1024)
FIFO = QueueFacts(is_fifo=True, most_bytes=1024 * 1024)


@pytest.fixture
def fifo() -> Iterator[ScriptedSqs]:
    with aws_settings(), scripted_sqs(fifo=True) as server:
        yield server


def outgoing(*bodies: str, group: str | None = "g") -> list[Outgoing]:
    return [Outgoing(id=body, body=body.encode(), group=group) for body in bodies]


def sent(sqs: ScriptedSqs) -> list[list[str]]:
    return [[entry["MessageBody"] for entry in asked["Entries"]] for asked in sqs.asked("SendMessageBatch")]


async def test_ten_go_in_a_call_in_their_order(sqs: ScriptedSqs) -> None:
    async with opened(open_publisher(sqs.url)) as publisher:
        bodies = [str(number) for number in range(23)]
        assert await publisher.publish(outgoing(*bodies)) == [None] * 23
        assert await publisher.publish([]) == []
    assert sent(sqs) == [bodies[:10], bodies[10:20], bodies[20:]]


async def test_a_call_holds_256_kib_and_what_is_larger_goes_alone(sqs: ScriptedSqs) -> None:
    sizes = [100, 150, 100, 600, 1, 1]
    async with opened(open_publisher(sqs.url)) as publisher:
        messages = [Outgoing(id=str(size), body=b"x" * size * 1024) for size in sizes]
        assert await publisher.publish(messages) == [None] * 6
    assert [[len(body) // 1024 for body in call] for call in sent(sqs)] == [[100, 150], [100], [600], [1, 1]]


async def test_a_standard_queue_carries_group_and_delay_with_each_message(sqs: ScriptedSqs) -> None:
    async with opened(open_publisher(sqs.url)) as publisher:
        await publisher.publish(
            [Outgoing(id="a", body=b"a", group="größe 1", delay_ms=1001), Outgoing(id="b", body=b"b")]
        )
    (asked,) = sqs.asked("SendMessageBatch")
    attributes = {"Fleet-Group": {"DataType": "String", "StringValue": "größe 1"}}
    assert asked["Entries"] == [
        {"Id": "0", "MessageBody": "a", "MessageAttributes": attributes, "DelaySeconds": 2},
        {"Id": "1", "MessageBody": "b"},
    ]


async def test_a_fifo_queue_is_told_group_and_dedup_id(fifo: ScriptedSqs) -> None:
    async with opened(open_publisher(fifo.url)) as publisher:
        messages = [
            Outgoing(id="a", body=b"a", group="g", dedup_id="d"),
            Outgoing(id="b", body=b"b", group="g"),
            Outgoing(id="c", body=b"c"),
            Outgoing(id="c", body=b"c"),
            Outgoing(id="has spaces", body=b"d"),
        ]
        assert await publisher.publish(messages) == [None] * 5
    (asked,) = fifo.asked("SendMessageBatch")
    groups = [entry["MessageGroupId"] for entry in asked["Entries"]]
    dedup = [entry["MessageDeduplicationId"] for entry in asked["Entries"]]
    assert dedup[:4] == ["d", "b", "c", "c"]
    assert len(dedup[4]) == 64
    assert groups[:2] == ["g", "g"]
    assert groups[2].startswith("fleet.none.")
    # A message that is sent twice has the same group both times; two messages have not.
    assert groups[2] == groups[3] != groups[4]


@pytest.mark.parametrize(
    ("message", "facts", "why"),
    [
        (Outgoing("i", b"\xff"), STANDARD, "UTF-8"),
        (Outgoing("i", b""), STANDARD, "empty"),
        (Outgoing("i", b"a\x00"), FIFO, "character"),
        (Outgoing("i", "\ufffe".encode()), FIFO, "character"),
        (Outgoing("i", b"x" * (1024 * 1024 + 1)), STANDARD, "1048576"),
        (Outgoing("i", b"x" * 1025), QueueFacts(is_fifo=True, most_bytes=1024), "1024"),
        (Outgoing("i", b"x", delay_ms=-1), STANDARD, "negative"),
        (Outgoing("i", b"x", delay_ms=900_001), STANDARD, "900 s"),
        (Outgoing("i", b"x", delay_ms=1), FIFO, "cannot delay a single message"),
        (Outgoing("i", b"x", group="a b"), FIFO, "FIFO group"),
        (Outgoing("i", b"x", group="ö"), FIFO, "FIFO group"),
        (Outgoing("i", b"x", group="g" * 129), FIFO, "FIFO group"),
        (Outgoing("i", b"x", group="fleet.none.1"), FIFO, "none"),
        (Outgoing("i", b"x", group="a\x00"), STANDARD, "group"),
    ],
)
def test_what_sqs_cannot_take_is_refused_with_the_reason(message: Outgoing, facts: QueueFacts, why: str) -> None:
    assert why in (refusal(message, facts) or "")


@pytest.mark.parametrize(
    ("message", "facts"),
    [
        (Outgoing("i", "größe \t\n\U0001f600".encode(), group="größe 1", delay_ms=900_000), STANDARD),
        (Outgoing("i", b"x", group="a/b:c~!" + "x" * 121), FIFO),
        (Outgoing("i", b"x" * (1024 * 1024)), FIFO),
    ],
)
def test_what_sqs_takes_is_not_refused(message: Outgoing, facts: QueueFacts) -> None:
    assert refusal(message, facts) is None


async def test_a_failed_entry_is_told_in_its_place_and_holds_up_the_rest_of_its_group(fifo: ScriptedSqs) -> None:
    fifo.on("SendMessageBatch", failing({"3": ("InternalError", "oops", False)}))
    async with opened(open_publisher(fifo.url)) as publisher:
        messages = [*outgoing(*map(str, range(12))), *outgoing("other", group="h"), *outgoing("alone", group=None)]
        answers = await publisher.publish(messages)
    assert sent(fifo) == [[str(number) for number in range(10)], ["other", "alone"]]
    assert answers[3] == "SQS did not take it: InternalError: oops; 6 later of its group are in"
    held_up = "not sent: an earlier message of its group was not accepted"
    assert [*answers[:3], *answers[4:]] == [*[None] * 3, *[None] * 6, held_up, held_up, None, None]


async def test_what_cannot_go_holds_up_its_group_on_fifo_and_nothing_on_standard(
    fifo: ScriptedSqs, sqs: ScriptedSqs
) -> None:
    messages = [*outgoing("1"), Outgoing("bad", b"\xff", group="g"), *outgoing("2"), *outgoing("3", group=None)]
    for queue, bodies in ((fifo, ["1", "3"]), (sqs, ["1", "2", "3"])):
        async with opened(open_publisher(queue.url)) as publisher:
            answers = await publisher.publish(messages)
        assert sent(queue) == [bodies]
        assert [why is None for why in answers] == [True, False, "2" in bodies, True]


def spoiled_by_one(asked: dict[str, Any]) -> Answer:
    bad = any(entry["MessageBody"] == "bad" for entry in asked["Entries"])
    return refusing("InvalidMessageContents")(asked) if bad else all_done(asked)


async def test_one_message_that_spoils_its_call_is_found(sqs: ScriptedSqs) -> None:
    sqs.on("SendMessageBatch", spoiled_by_one)
    async with opened(open_publisher(sqs.url)) as publisher:
        answers = await publisher.publish(outgoing("1", "bad", "2"))
    assert [why is None for why in answers] == [True, False, True]
    assert "InvalidMessageContents" in str(answers[1])


async def test_a_message_that_spoils_its_call_holds_up_its_group_on_fifo(fifo: ScriptedSqs) -> None:
    fifo.on("SendMessageBatch", spoiled_by_one)
    async with opened(open_publisher(fifo.url)) as publisher:
        answers = await publisher.publish([*outgoing("1", "bad", "2"), *outgoing("3", group="h")])
    assert [why is None for why in answers] == [True, False, False, True]
    assert ["2"] not in sent(fifo)


async def test_a_queue_that_is_away_is_an_error_and_one_that_goes_away_is_told_for_the_rest(sqs: ScriptedSqs) -> None:
    away = refusing("ServiceUnavailable", 503)
    async with opened(open_publisher(sqs.url)) as publisher:
        sqs.on("SendMessageBatch", all_done, away)
        answers = await publisher.publish([*outgoing(*map(str, range(15))), Outgoing("bad", b"\xff")])
        assert answers[:10] == [None] * 10
        assert all("may not have been accepted" in str(why) for why in answers[10:15])
        assert "UTF-8" in str(answers[15])
        with pytest.raises(SourceUnavailable):
            await publisher.publish(outgoing("1"))
    with pytest.raises(SourceUnavailable, match="not open"):
        await publisher.publish(outgoing("1"))
