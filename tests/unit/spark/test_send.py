"""What is said of a job in the queue."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from fleet.errors import InvalidMessage, SourceUnavailable
from fleet.message import DEFAULT_POOL, DispatchMode, Message, decode
from fleet.sources.base import Never, Outgoing, Unsent, Unsure
from spark.sources import send
from spark.sources.send import Destination, Row, Sender, writer

TO = Destination(
    uri="fleet://dispatch",
    redis_url="",
    sqs_endpoint="",
    endpoint="http://server/process",
    key=b"k",
    fence=1,
    dedup_ms=1000,
)


def said_of(row: Row, to: Destination = TO) -> Message:
    return decode(writer(to)(row).body)


@pytest.mark.parametrize(("of_job", "asked"), [(DEFAULT_POOL, "MAIN"), ("OWN", "OWN")])
def test_a_job_without_a_pool_goes_to_the_one_that_is_configured_for_such(of_job: str, asked: str) -> None:
    to = dataclasses.replace(TO, default_pool="MAIN")
    assert said_of(Row("a", 1, "g", "NEXT_ON_ERROR", of_job), to).pool_code == asked


@pytest.mark.parametrize(
    ("mode", "group", "at_router"),
    [
        ("NEXT_ON_ERROR", "g", ("g", "BLOCK_ON_ERROR")),
        ("BLOCK_ON_ERROR", "g", ("g", "BLOCK_ON_ERROR")),
        ("IMMEDIATE", "g", (None, "IMMEDIATE")),
        ("NEXT_ON_ERROR", None, (None, "IMMEDIATE")),
        ("BLOCK_ON_ERROR", None, (None, "IMMEDIATE")),
    ],
)
def test_no_ordered_job_is_overtaken_where_our_own_server_fails_and_no_other_waits_at_the_router(
    mode: DispatchMode, group: str | None, at_router: tuple[str | None, str]
) -> None:
    message = said_of(Row("a", 1, group, mode, "P"))
    assert (message.message_group_id, message.dispatch_mode) == at_router


def test_a_message_is_one_for_each_attempt() -> None:
    first, second = (writer(TO)(Row("a", attempt, "g", "NEXT_ON_ERROR", "P")) for attempt in (1, 2))
    assert (first.dedup_id, second.dedup_id) == ("a:1", "a:2")
    assert decode(second.body).mediation_target == "http://server/process?attempt=2"


def test_what_no_router_would_take_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InvalidMessage):
        writer(TO)(Row("a", 1, "g", "NEXT_ON_ERROR", "P" * 200))


class _Queue:
    """Answers what it is told to."""

    def __init__(self, answers: Sequence[str | None]) -> None:
        self._answers = answers

    async def open(self) -> None: ...

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        assert len(messages) == len(self._answers)
        return list(self._answers)

    async def close(self) -> None: ...


def sender_to(answers: Sequence[str | None], monkeypatch: pytest.MonkeyPatch) -> Sender:
    monkeypatch.setattr(send, "open_publisher", lambda *_, **__: _Queue(answers))
    return Sender(dataclasses.replace(TO, uri="nats://127.0.0.1/S/C"))


ROWS = [Row(name, 1, "g", "NEXT_ON_ERROR", "P") for name in "ab"]


@pytest.mark.parametrize("trouble", [Unsent("away"), Unsure("its answer got lost"), "it is full"])
async def test_what_a_queue_did_not_take_now_ends_no_job(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceUnavailable):
        await sender_to([None, trouble], monkeypatch).send(ROWS)


async def test_what_a_queue_never_takes_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    done = await sender_to([None, Never("too large")], monkeypatch).send(ROWS)
    assert (done.sent, [(row.job_id, why) for row, why in done.refused]) == (1, [("b", "too large")])
