"""ReceiveMessage over the door: what it brings, what it says of it, and for how long it waits."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from fleet.broker.sqs import md5
from tests.integration.sqs.shop import Shop, arn_of
from tests.servers.sqs_door import ClockedDoor
from tests.waiting import let_pass, until

ATTRIBUTES: dict[str, dict[str, Any]] = {
    "price.net": {"DataType": "Number", "StringValue": "1.50"},
    "price.gross": {"DataType": "Number.float", "StringValue": "1.80"},
    "colour": {"DataType": "String", "StringValue": "grün"},
    "picture": {"DataType": "Binary.png", "BinaryValue": bytes(range(256))},
}


def test_an_empty_queue_answers_without_a_list(sqs: Shop) -> None:
    assert "Messages" not in sqs.client.receive_message(QueueUrl=sqs.queue())


def test_a_message_says_nothing_of_itself_unless_it_is_asked(sqs: Shop) -> None:
    url = sqs.queue()
    sqs.send(url, "x", MessageAttributes=ATTRIBUTES)
    (found,) = sqs.receive(url)
    assert set(found) == {"MessageId", "ReceiptHandle", "MD5OfBody", "Body"}


def test_everything_is_told_of_a_message_of_a_standard_queue(sqs: Shop) -> None:
    url = sqs.queue()
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988"}}
    sent = sqs.send(url, "x", "tenant", MessageAttributes=ATTRIBUTES, MessageSystemAttributes=trace)
    found = sqs.one(url)
    assert found["MessageAttributes"] == ATTRIBUTES
    assert found["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"] == md5.of_attributes(ATTRIBUTES)
    assert sent["MD5OfMessageSystemAttributes"] == md5.of_system_attributes(trace)
    told = found["Attributes"]
    assert told.pop("SenderId")
    assert int(told.pop("SentTimestamp")) <= int(told.pop("ApproximateFirstReceiveTimestamp"))
    assert told == {
        "ApproximateReceiveCount": "1",
        "AWSTraceHeader": "Root=1-5759e988",
        "MessageGroupId": "tenant",
    }


def test_everything_is_told_of_a_message_of_a_fifo_queue(sqs: Shop) -> None:
    url = sqs.queue(fifo=True)
    sent = sqs.send(url, "x", "g", MessageDeduplicationId="d")
    told = sqs.one(url)["Attributes"]
    assert told["SequenceNumber"] == sent["SequenceNumber"]
    assert len(sent["SequenceNumber"]) == 20
    assert (told["MessageGroupId"], told["MessageDeduplicationId"]) == ("g", "d")


def test_the_older_parameter_asks_for_what_a_message_says_too(sqs: Shop) -> None:
    url = sqs.queue()
    sqs.send(url, "x")
    (found,) = sqs.receive(url, AttributeNames=["ApproximateReceiveCount"])
    assert found["Attributes"] == {"ApproximateReceiveCount": "1"}


def test_attributes_are_chosen_by_their_beginning_and_the_digest_is_of_those(sqs: Shop) -> None:
    url = sqs.queue()
    sqs.send(url, "x", MessageAttributes=ATTRIBUTES)
    (found,) = sqs.receive(url, MessageAttributeNames=["price.*"])
    chosen = {name: ATTRIBUTES[name] for name in ("price.net", "price.gross")}
    assert found["MessageAttributes"] == chosen
    assert found["MD5OfMessageAttributes"] == md5.of_attributes(chosen)


def test_an_attribute_that_is_not_there_brings_none_and_no_digest(sqs: Shop) -> None:
    url = sqs.queue()
    sqs.send(url, "x", MessageAttributes=ATTRIBUTES)
    (found,) = sqs.receive(url, MessageAttributeNames=["weight"])
    assert "MessageAttributes" not in found
    assert "MD5OfMessageAttributes" not in found


def test_a_visibility_of_zero_wins_over_the_queues_own(sqs: Shop) -> None:
    url = sqs.queue(VisibilityTimeout="600")
    sqs.send(url, "x")
    assert sqs.bodies(url, VisibilityTimeout=0) == ["x"]
    assert sqs.bodies(url) == ["x"]
    assert sqs.bodies(url) == []


def test_a_wait_of_zero_wins_over_the_queues_own(sqs: Shop) -> None:
    url = sqs.queue(ReceiveMessageWaitTimeSeconds="20")
    began_s = time.monotonic()
    assert sqs.bodies(url, WaitTimeSeconds=0) == []
    assert time.monotonic() - began_s < 10


def test_a_queues_own_wait_holds_where_a_receive_says_nothing(sqs: Shop) -> None:
    url = sqs.queue(ReceiveMessageWaitTimeSeconds="1")
    began_s = time.monotonic()
    assert sqs.bodies(url) == []
    assert time.monotonic() - began_s >= 0.95


def test_a_group_gives_its_messages_in_order_and_holds_the_rest_back(sqs: Shop) -> None:
    url = sqs.fifo()
    for body in ("1", "2", "3", "4"):
        sqs.send(url, body, "g")
    sqs.send(url, "other", "h")
    first = sqs.receive(url, 2)
    assert [one["Body"] for one in first if one["Body"] != "other"] in (["1"], ["1", "2"])
    taken = {one["Body"] for one in first}
    # Nothing more of a group of which something is out.
    assert set(sqs.bodies(url)) <= {"other"} - taken
    for one in first:
        sqs.delete(url, one)
    left = [body for body in ("1", "2", "3", "4") if body not in taken]
    assert sqs.bodies(url) == left


def test_a_repeated_receive_of_a_standard_queue_counts(sqs: Shop) -> None:
    url = sqs.queue(VisibilityTimeout="0")
    sqs.send(url, "x")
    counts = [sqs.one(url)["Attributes"]["ApproximateReceiveCount"] for _ in range(3)]
    assert counts == ["1", "2", "3"]


# Long polls ------------------------------------------------------------------------------------------


def test_a_long_poll_is_woken_by_a_send_through_another_door(sqs: Shop, other: Shop) -> None:
    url = sqs.queue()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(sqs.receive, url, WaitTimeSeconds=20)
        let_pass(0.3)
        began_s = time.monotonic()
        other.send(url, "x")
        (found,) = waiting.result(30)
    assert found["Body"] == "x"
    # Well below the five seconds after which is looked without a signal.
    assert time.monotonic() - began_s < 3


def test_a_long_poll_ends_with_what_comes_back_meanwhile(sqs: Shop) -> None:
    url = sqs.queue()
    sqs.send(url, "x")
    assert sqs.bodies(url, VisibilityTimeout=1) == ["x"]
    assert sqs.bodies(url, WaitTimeSeconds=20) == ["x"]


def test_a_long_poll_outlives_a_change_of_its_queue(sqs: Shop, other: Shop) -> None:
    url = sqs.queue()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(sqs.receive, url, WaitTimeSeconds=10)
        let_pass(0.3)
        other.set(url, VisibilityTimeout="77")
        let_pass(0.3)
        other.send(url, "x")
        assert [one["Body"] for one in waiting.result(30)] == ["x"]


def test_a_receive_that_does_not_wait_does_not_begin_to_when_its_queue_changes(sqs: Shop, other: Shop) -> None:
    url = sqs.queue(ReceiveMessageWaitTimeSeconds="20")
    assert sqs.bodies(url, WaitTimeSeconds=0) == []
    other.set(url, VisibilityTimeout="77")
    began_s = time.monotonic()
    assert sqs.bodies(url, WaitTimeSeconds=0) == []
    assert time.monotonic() - began_s < 10


def test_a_client_that_hangs_up_in_a_long_poll_is_given_nothing(sqs: Shop) -> None:
    url = sqs.queue()
    body = json.dumps({"QueueUrl": url, "WaitTimeSeconds": 20}).encode()
    address = sqs.url.removeprefix("http://")
    host, _, port = address.partition(":")
    head = (
        f"POST / HTTP/1.1\r\nHost: {address}\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
        f"Content-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(head.encode() + body)
        let_pass(0.3)
    let_pass(0.2)
    sqs.send(url, "x")
    until(lambda: sqs.counts(url) == (1, 0, 0), 10)
    assert sqs.one(url)["Attributes"]["ApproximateReceiveCount"] == "1"


def test_messages_are_shared_among_those_who_wait(sqs: Shop, other: Shop) -> None:
    url = sqs.queue()
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(shop.receive, url, 1, WaitTimeSeconds=20) for shop in (sqs, other) * 3]
        let_pass(0.3)
        for i in range(6):
            sqs.send(url, f"{i}")
        found = [one["Body"] for each in waiting for one in each.result(30)]
    assert sorted(found) == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize("fifo", [False, True])
def test_each_of_those_who_wait_at_one_door_is_woken_by_a_message_of_its_own(sqs: Shop, fifo: bool) -> None:
    url = sqs.fifo() if fifo else sqs.queue()
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(sqs.receive, url, WaitTimeSeconds=20) for _ in range(4)]
        let_pass(0.3)
        began_s = time.monotonic()
        for i in range(4):
            sqs.send(url, f"{i}", f"g{i}" if fifo else "")
            let_pass(0.2)
        found = [one["Body"] for each in waiting for one in each.result(30)]
    assert sorted(found) == ["0", "1", "2", "3"]
    # Well below the five seconds after which is looked without a signal.
    assert time.monotonic() - began_s < 3.5


# The same attempt again ------------------------------------------------------------------------------


def test_an_attempt_is_given_the_same_messages_and_handles_again(sqs: Shop, other: Shop) -> None:
    url = sqs.fifo()
    for body in ("1", "2"):
        sqs.send(url, body, "g")
    first = sqs.receive(url, ReceiveRequestAttemptId="a", MessageSystemAttributeNames=["All"])
    again = other.receive(url, ReceiveRequestAttemptId="a", MessageSystemAttributeNames=["All"])
    assert again == first
    assert [one["Body"] for one in again] == ["1", "2"]
    # Others get nothing meanwhile.
    assert sqs.receive(url, ReceiveRequestAttemptId="b") == []
    for one in again:
        sqs.delete(url, one)


def test_an_attempt_is_void_once_something_became_of_a_message(sqs: Shop) -> None:
    url = sqs.fifo()
    for body in ("1", "2"):
        sqs.send(url, body, "g")
    first, second = sqs.receive(url, ReceiveRequestAttemptId="a")
    sqs.delete(url, first)
    assert sqs.receive(url, ReceiveRequestAttemptId="a") == []
    sqs.hide(url, second, 0)
    assert [one["Body"] for one in sqs.receive(url, ReceiveRequestAttemptId="a")] == ["2"]


def test_an_empty_answer_to_an_attempt_is_not_remembered(sqs: Shop) -> None:
    url = sqs.fifo()
    assert sqs.receive(url, ReceiveRequestAttemptId="a") == []
    sqs.send(url, "x", "g")
    assert [one["Body"] for one in sqs.receive(url, ReceiveRequestAttemptId="a")] == ["x"]


def test_a_repeated_dead_letter_says_where_it_comes_from(sqs: Shop) -> None:
    dead = sqs.fifo()
    policy = json.dumps({"deadLetterTargetArn": arn_of(dead), "maxReceiveCount": 1})
    url = sqs.fifo(RedrivePolicy=policy, VisibilityTimeout="0")
    sqs.send(url, "x", "g")
    assert sqs.bodies(url) == ["x"]
    assert sqs.bodies(url) == []
    told: dict[str, Any] = {"MessageSystemAttributeNames": ["DeadLetterQueueSourceArn"], "ReceiveRequestAttemptId": "a"}
    (first,) = sqs.receive(dead, WaitTimeSeconds=10, **told)
    (again,) = sqs.receive(dead, **told)
    assert again == first
    assert first["Attributes"] == {"DeadLetterQueueSourceArn": arn_of(url)}


def test_an_attempt_of_a_queue_in_partitions_is_void_as_a_whole(sqs: Shop) -> None:
    url = sqs.queue(
        fifo=True,
        PartitionCount="4",
        DeduplicationScope="messageGroup",
        FifoThroughputLimit="perMessageGroupId",
        ContentBasedDeduplication="true",
    )
    for group in ("a", "b", "c", "d", "e"):
        sqs.send(url, group, group)
    first = sqs.receive(url, ReceiveRequestAttemptId="a")
    assert len(first) == 5
    sqs.delete(url, first[0])
    assert sqs.receive(url, ReceiveRequestAttemptId="a") == []


def test_a_door_that_is_asked_for_its_health_says_so(sqs: Shop) -> None:
    assert requests.get(f"{sqs.url}/health", timeout=10).text == "ok\n"


def test_two_who_send_the_same_attempt_at_once_are_not_given_different_messages(sqs: Shop, other: Shop) -> None:
    url = sqs.fifo()
    for i in range(4):
        sqs.send(url, f"{i}", f"g{i}")
    first = sqs.receive(url, 2, ReceiveRequestAttemptId="a")
    with ThreadPoolExecutor() as pool:
        again = [pool.submit(shop.receive, url, 2, ReceiveRequestAttemptId="a") for shop in (sqs, other) * 3]
        assert all(one.result(30) == first for one in again)


def test_a_repeated_attempt_prolongs_the_time_of_its_messages(timed: Shop, clocked: ClockedDoor) -> None:
    url = timed.fifo(VisibilityTimeout="30")
    timed.send(url, "x", "g")
    first = timed.receive(url, ReceiveRequestAttemptId="a")
    clocked.pass_s(20)
    assert timed.receive(url, ReceiveRequestAttemptId="a") == first
    clocked.pass_s(20)
    assert timed.bodies(url) == []
    timed.delete(url, first[0])
    timed.send(url, "y", "g")
    (lapsing,) = timed.receive(url, ReceiveRequestAttemptId="b")
    clocked.pass_s(30)
    # Its time is over: this is a receive like any other, and counts.
    (again,) = timed.receive(url, ReceiveRequestAttemptId="b")
    assert again["Body"] == lapsing["Body"]
    assert again["ReceiptHandle"] != lapsing["ReceiptHandle"]
