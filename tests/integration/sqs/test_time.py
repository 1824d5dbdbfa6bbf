"""Delays, retention and deduplication over the door, with a clock that the tests move; and how many may be out."""

from __future__ import annotations

import pytest

from fleet.broker.sqs import catalogue
from tests.integration.sqs.shop import Shop, refused
from tests.servers.sqs_door import ClockedDoor


def test_a_message_of_a_standard_queue_is_delayed_as_it_says_or_as_its_queue_does(
    timed: Shop, clocked: ClockedDoor
) -> None:
    url = timed.queue(DelaySeconds="10")
    timed.send(url, "queue")
    timed.send(url, "own", DelaySeconds=20)
    timed.send(url, "none", DelaySeconds=0)
    assert timed.counts(url) == (1, 0, 2)
    assert timed.bodies(url) == ["none"]
    clocked.pass_s(10)
    assert timed.bodies(url) == ["queue"]
    assert timed.counts(url) == (0, 2, 1)
    clocked.pass_s(10)
    assert timed.bodies(url) == ["own"]


def test_a_changed_delay_of_a_standard_queue_counts_for_what_is_sent_from_then_on(
    timed: Shop, clocked: ClockedDoor
) -> None:
    url = timed.queue(DelaySeconds="100", VisibilityTimeout="600")
    timed.send(url, "before")
    timed.set(url, DelaySeconds="0")
    timed.send(url, "after")
    assert timed.bodies(url) == ["after"]
    clocked.pass_s(100)
    assert timed.bodies(url) == ["before"]


def test_a_changed_delay_of_a_fifo_queue_counts_for_what_is_there_too(timed: Shop, clocked: ClockedDoor) -> None:
    url = timed.fifo(DelaySeconds="100")
    timed.send(url, "1", "g")
    assert timed.bodies(url) == []
    assert timed.counts(url) == (0, 0, 1)
    timed.set(url, DelaySeconds="10")
    assert timed.bodies(url) == []
    clocked.pass_s(10)
    assert timed.bodies(url) == ["1"]
    timed.send(url, "2", "h")
    timed.set(url, DelaySeconds="50")
    clocked.pass_s(10)
    assert timed.bodies(url) == []
    clocked.pass_s(40)
    assert timed.bodies(url) == ["1", "2"]


def test_a_delay_of_a_fifo_queue_that_is_taken_away_shows_at_once_what_is_there(
    timed: Shop, clocked: ClockedDoor
) -> None:
    url = timed.fifo(DelaySeconds="100")
    for group in ("g", "h"):
        timed.send(url, group, group)
    assert timed.bodies(url) == []
    timed.set(url, DelaySeconds="0")
    assert timed.counts(url) == (2, 0, 0)
    assert timed.bodies(url) == ["g", "h"]


def test_a_fifo_queue_takes_a_delay_of_zero(timed: Shop) -> None:
    url = timed.fifo()
    timed.send(url, "x", "g", DelaySeconds=0)
    assert timed.bodies(url) == ["x"]


@pytest.mark.parametrize("fifo", [False, True])
def test_a_message_is_gone_when_its_retention_is_over(timed: Shop, clocked: ClockedDoor, fifo: bool) -> None:
    url = (timed.fifo if fifo else timed.queue)(MessageRetentionPeriod="60")
    timed.send(url, "old", "g" if fifo else "")
    clocked.pass_s(30)
    timed.send(url, "young", "g" if fifo else "")
    clocked.pass_s(30)
    assert timed.bodies(url) == ["young"]


def test_what_nobody_receives_is_swept_away_too(timed: Shop, clocked: ClockedDoor) -> None:
    url = timed.queue(MessageRetentionPeriod="60")
    timed.send(url, "x")
    clocked.pass_s(61)
    clocked.tidy()
    assert timed.counts(url) == (0, 0, 0)


def test_a_deduplication_id_is_known_for_five_minutes(timed: Shop, clocked: ClockedDoor) -> None:
    url = timed.queue(fifo=True)
    first = timed.send(url, "1", "g", MessageDeduplicationId="d")
    timed.delete(url, timed.one(url))
    clocked.pass_s(299)
    again = timed.send(url, "2", "g", MessageDeduplicationId="d")
    assert (again["MessageId"], again["SequenceNumber"]) == (first["MessageId"], first["SequenceNumber"])
    assert timed.bodies(url) == []
    clocked.pass_s(2)
    assert timed.send(url, "3", "g", MessageDeduplicationId="d")["MessageId"] != first["MessageId"]
    assert timed.bodies(url) == ["3"]


def test_deduplication_by_content_looks_at_the_body_alone(timed: Shop) -> None:
    url = timed.fifo()
    first = timed.send(url, "x", "g")
    attributes = {"a": {"DataType": "String", "StringValue": "v"}}
    assert timed.send(url, "x", "h", MessageAttributes=attributes)["MessageId"] == first["MessageId"]


def test_a_group_of_its_own_has_deduplication_ids_of_its_own(timed: Shop) -> None:
    url = timed.fifo(DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    first, second = timed.send(url, "x", "g"), timed.send(url, "x", "h")
    assert first["MessageId"] != second["MessageId"]
    assert timed.send(url, "x", "g")["MessageId"] == first["MessageId"]


def test_a_standard_queue_says_when_too_many_are_out(timed: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue.MOST_IN_FLIGHT, False, 2)
    url = timed.queue()
    for i in range(3):
        timed.send(url, f"{i}")
    (first, _) = timed.receive(url, 2)
    with refused("OverLimit", status=403):
        timed.receive(url)
    timed.delete(url, first)
    assert len(timed.receive(url, 1)) == 1


def test_a_fifo_queue_gives_nothing_when_too_many_are_out(timed: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue.MOST_IN_FLIGHT, True, 2)
    url = timed.fifo()
    for i in range(3):
        timed.send(url, f"{i}", f"{i}")
    (first, _) = timed.receive(url, 2)
    assert timed.bodies(url) == []
    timed.delete(url, first)
    assert timed.bodies(url) == ["2"]
