"""Throttling of a queue over the door (seed 003, 3.C): who pays, what a rejection says, and how a bucket lives."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from fleet.state.keys import OwnQueueKeys
from tests.integration.sqs.shop import Shop, a_name, name_of, refused
from tests.servers.local import RedisServer
from tests.servers.sqs_door import SqsDoor, running_sqs_door
from tests.waiting import until

SLOW = "0.001"
"""Tokens a second that no test waits for."""


def limited(**pairs: tuple[str, str]) -> dict[str, str]:
    """Capacity and refill, by kind."""
    found: dict[str, str] = {}
    for kind, (capacity, refill) in pairs.items():
        found |= {f"Throttle{kind}Capacity": capacity, f"Throttle{kind}RefillPerSecond": refill}
    return found


def sent(shop: Shop, url: str, most: int = 30) -> int:
    """How many go before one is refused."""
    for i in range(most):
        try:
            shop.send(url, f"{i}")
        except shop.client.exceptions.ClientError as error:
            assert code_of(error.response) == "Throttling"
            return i
    return most


def received(shop: Shop, url: str, most: int = 30) -> int:
    for i in range(most):
        try:
            shop.receive(url)
        except shop.client.exceptions.ClientError as error:
            assert code_of(error.response) == "Throttling"
            return i
    return most


def batch(shop: Shop, url: str, count: int) -> dict[str, Any]:
    entries = [{"Id": f"{i}", "MessageBody": "x"} for i in range(count)]
    found: dict[str, Any] = shop.client.send_message_batch(QueueUrl=url, Entries=entries)
    return found


def code_of(response: Mapping[str, Any]) -> str:
    found: str = response["Error"]["Code"]
    return found


# Attributes ------------------------------------------------------------------------------------------


def test_limits_are_described_while_they_are_set(sqs: Shop) -> None:
    url = sqs.queue(limited(Send=("12.5", "2.5")))
    found = {name: value for name, value in sqs.attributes(url).items() if name.startswith("Throttle")}
    assert found == {"ThrottleSendCapacity": "12.5", "ThrottleSendRefillPerSecond": "2.5"}
    sqs.set(url, **limited(Send=("0", "0"), Recv=("20", "1")))
    found = {name: value for name, value in sqs.attributes(url).items() if name.startswith("Throttle")}
    assert found == {"ThrottleRecvCapacity": "20", "ThrottleRecvRefillPerSecond": "1"}


@pytest.mark.parametrize(
    "given",
    [
        {"ThrottleSendCapacity": "-1", "ThrottleSendRefillPerSecond": "1"},
        {"ThrottleSendCapacity": "NaN", "ThrottleSendRefillPerSecond": "1"},
        {"ThrottleSendCapacity": "inf", "ThrottleSendRefillPerSecond": "1"},
        {"ThrottleSendCapacity": "many", "ThrottleSendRefillPerSecond": "1"},
        {"ThrottleRecvCapacity": "100001", "ThrottleRecvRefillPerSecond": "1"},
        {"ThrottleRecvCapacity": "100"},
        {"ThrottleRecvRefillPerSecond": "1"},
        {"ThrottleSendCapacity": "10", "ThrottleSendRefillPerSecond": "11"},
        {"ThrottleSendCapacity": "9", "ThrottleSendRefillPerSecond": "1"},
        {"ThrottleRecvCapacity": "9", "ThrottleRecvRefillPerSecond": "1"},
        {"ThrottleDefaultCapacity": "9", "ThrottleDefaultRefillPerSecond": "1"},
    ],
)
def test_limits_that_cannot_be_are_refused_and_change_nothing(sqs: Shop, given: dict[str, str]) -> None:
    with refused("InvalidAttributeValue"):
        sqs.queue(given)
    url = sqs.queue()
    with refused("InvalidAttributeValue"):
        sqs.set(url, **{**given, "VisibilityTimeout": "77"})
    assert sqs.attributes(url, "VisibilityTimeout", *given) == {"VisibilityTimeout": "30"}


def test_a_limit_that_nobody_knows_is_an_unknown_attribute(sqs: Shop) -> None:
    with refused("InvalidAttributeName", "Unknown Attribute ThrottleDeleteCapacity."):
        sqs.queue(ThrottleDeleteCapacity="10")


def test_half_of_a_pair_may_come_in_a_later_call_if_the_whole_fits(sqs: Shop) -> None:
    url = sqs.queue(limited(Send=("10", "5")))
    sqs.set(url, ThrottleSendRefillPerSecond="10")
    with refused("InvalidAttributeValue"):
        sqs.set(url, ThrottleSendRefillPerSecond="0")
    assert sqs.attributes(url, "ThrottleSendRefillPerSecond") == {"ThrottleSendRefillPerSecond": "10"}


def test_a_queue_that_is_there_with_other_limits_is_not_created(sqs: Shop) -> None:
    name = a_name()
    given = limited(Send=("10", "1"))
    url = sqs.queue(given, name=name)
    assert sqs.queue(given, name=name) == url
    with refused("QueueAlreadyExists", lambda text: text.endswith("attribute ThrottleSendCapacity")):
        sqs.queue(limited(Send=("11", "1")), name=name)


# Who pays --------------------------------------------------------------------------------------------


def test_a_rejection_says_when_to_come_again(sqs: Shop) -> None:
    url = sqs.queue(limited(Send=("10", "0.5")))
    batch(sqs, url, 10)
    with refused("Throttling", f"Rate exceeded for queue '{name_of(url)}' action 'Send'", status=400) as told:
        batch(sqs, url, 10)
    headers = told["Headers"]
    # Until there are ten, not until there is one.
    assert headers["retry-after"] == "20"
    assert headers["x-amz-retry-after"] == "20000"
    assert headers["x-amzn-errortype"] == "Throttling"
    if sqs.protocol == "query":
        assert told["Error"]["Type"] == "Sender"


def test_a_rejection_is_a_type_and_a_message_in_json(sqs: Shop) -> None:
    url = sqs.queue(limited(Recv=("10", SLOW)))
    assert received(sqs, url) == 10
    headers = {"X-Amz-Target": "AmazonSQS.ReceiveMessage", "Content-Type": "application/x-amz-json-1.0"}
    found = requests.post(sqs.url, json={"QueueUrl": url}, headers=headers, timeout=10)
    assert found.status_code == 400
    assert found.json() == {
        "__type": "Throttling",
        "message": f"Rate exceeded for queue '{name_of(url)}' action 'Receive'",
    }
    # A thousandth a second: no longer than an hour is asked for, and never less than a second.
    assert 900 <= int(found.headers["Retry-After"]) <= 1000


def test_a_batch_pays_for_each_of_its_messages_whole_or_not_at_all(sqs: Shop) -> None:
    url = sqs.queue(limited(Send=("10", SLOW)))
    batch(sqs, url, 5)
    with refused("Throttling"):
        batch(sqs, url, 6)
    assert sqs.counts(url)[0] == 5
    # The one that was refused took nothing.
    assert sent(sqs, url) == 5


def test_receiving_deleting_and_hiding_pay_from_one_bucket(sqs: Shop) -> None:
    url = sqs.queue(limited(Recv=("10", SLOW)))
    batch(sqs, url, 5)
    found = sqs.receive(url)
    assert len(found) == 5
    sqs.hide(url, found[0], 30)
    sqs.delete(url, found[0])
    handles = [{"Id": one["MessageId"], "ReceiptHandle": one["ReceiptHandle"]} for one in found[1:]]
    sqs.client.delete_message_batch(QueueUrl=url, Entries=handles)
    sqs.client.change_message_visibility_batch(
        QueueUrl=url, Entries=[{**one, "VisibilityTimeout": 1} for one in handles[:3]]
    )
    with refused("Throttling", lambda text: text.endswith("action 'Receive'")):
        sqs.receive(url)
    # Sending has no limit.
    assert sent(sqs, url) == 30


def test_verbs_of_the_queue_itself_are_free(sqs: Shop) -> None:
    url = sqs.queue(limited(Default=("10", SLOW)))
    assert sent(sqs, url) == 10
    sqs.attributes(url)
    sqs.set(url, VisibilityTimeout="60")
    sqs.client.tag_queue(QueueUrl=url, Tags={"a": "b"})
    sqs.client.list_queue_tags(QueueUrl=url)
    sqs.client.purge_queue(QueueUrl=url)


def test_what_has_no_limit_of_its_own_shares_the_default(sqs: Shop) -> None:
    url = sqs.queue(limited(Default=("10", SLOW)))
    for i in range(6):
        sqs.send(url, f"{i}")
    assert received(sqs, url) == 4
    with refused("Throttling", lambda text: text.endswith("action 'Send'")):
        sqs.send(url, "x")


def test_a_limit_of_its_own_leaves_the_default_to_the_other(sqs: Shop) -> None:
    url = sqs.queue(limited(Send=("12", SLOW), Default=("10", SLOW)))
    assert sent(sqs, url) == 12
    assert received(sqs, url) == 10


def test_a_queue_without_limits_is_not_throttled(sqs: Shop) -> None:
    url = sqs.queue(limited(Send=("0", "0"), Recv=("0", "0"), Default=("0", "0")))
    assert sent(sqs, url) == 30
    assert received(sqs, url) == 30


# How a bucket lives ----------------------------------------------------------------------------------


def test_a_bucket_refills_with_time(sqs: Shop) -> None:
    url = sqs.queue(limited(Send=("10", "10")))
    assert sent(sqs, url) >= 10
    with refused("Throttling") as told:
        batch(sqs, url, 10)
    time.sleep(int(told["Headers"]["retry-after"]))
    assert len(batch(sqs, url, 10)["Successful"]) == 10


def test_a_change_of_values_fills_the_bucket_and_the_same_values_do_not(sqs: Shop) -> None:
    given = limited(Send=("10", SLOW))
    url = sqs.queue(given)
    assert sent(sqs, url) == 10
    sqs.set(url, **given)
    sqs.set(url, VisibilityTimeout="60")
    assert sent(sqs, url) == 0
    sqs.set(url, ThrottleSendCapacity="11")
    assert sent(sqs, url) == 11


def test_a_door_that_knows_the_values_of_before_goes_by_the_new_ones(sqs: Shop, other: Shop) -> None:
    url = sqs.queue(limited(Send=("10", SLOW)))
    assert sent(sqs, url) == 10
    other.set(url, ThrottleSendCapacity="11")
    assert sent(sqs, url) == 11
    other.set(url, **limited(Send=("0", "0")))
    assert sent(sqs, url) == 30


def test_a_purge_keeps_the_bucket(sqs: Shop) -> None:
    url = sqs.queue(limited(Send=("10", SLOW)))
    assert sent(sqs, url) == 10
    sqs.client.purge_queue(QueueUrl=url)
    assert sent(sqs, url) == 0


def test_a_queue_that_was_deleted_and_made_anew_starts_with_a_full_bucket(sqs: Shop, other: Shop) -> None:
    given = limited(Send=("10", SLOW))
    url = sqs.queue(given)
    assert sent(sqs, url) == 10
    sqs.client.delete_queue(QueueUrl=url)
    sqs.queue(given, name=name_of(url))
    assert sent(other, url) == 10


def test_a_bucket_that_nobody_asks_goes_within_an_hour(sqs: Shop, sqs_redis: RedisServer) -> None:
    url = sqs.queue(limited(Send=("10", SLOW)))
    sqs.send(url, "x")
    with sqs_redis.client() as client:
        (bucket,) = client.keys(f"*/{name_of(url)}:*bucket*")
        assert 3_500_000 < client.pttl(bucket) <= 3_600_000


def test_all_partitions_share_one_bucket(sqs: Shop) -> None:
    given = limited(Send=("10", SLOW)) | {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "true",
        "PartitionCount": "8",
    }
    url = sqs.queue(given, name=a_name(fifo=True))
    for i in range(10):
        sqs.send(url, f"{i}", f"group-{i}")
    with refused("Throttling"):
        sqs.send(url, "x", "another")


def test_a_call_whose_queue_turns_out_to_have_changed_pays_once(sqs: Shop, other: Shop) -> None:
    url = sqs.queue(limited(Send=("10", SLOW)))
    sqs.send(url, "x")
    other.set(url, VisibilityTimeout="77")
    assert sent(sqs, url) == 9


def test_a_receive_whose_queue_changes_while_it_waits_pays_once(sqs: Shop, other: Shop, sqs_redis: RedisServer) -> None:
    url = sqs.queue(limited(Recv=("10", SLOW)))
    state = OwnQueueKeys(f"sqs/{name_of(url)}").state
    with ThreadPoolExecutor(1) as pool, sqs_redis.client() as client:
        waiting = pool.submit(sqs.bodies, url, WaitTimeSeconds=20)
        until(lambda: bool(client.hget(state, "waits")))
        other.set(url, VisibilityTimeout="77")
        until(lambda: bool(client.hget(state, "waits")))
        other.send(url, "x")
        assert waiting.result() == ["x"]
    assert received(sqs, url) == 9


@pytest.fixture(scope="module")
def third_door(sqs_redis: RedisServer) -> Iterator[SqsDoor]:
    with running_sqs_door(sqs_redis.url) as one:
        yield one


def test_three_doors_let_through_what_one_bucket_holds(
    sqs: Shop, door: SqsDoor, other_door: SqsDoor, third_door: SqsDoor
) -> None:
    capacity, refill, seconds = 100, 100, 3.0
    url = sqs.queue(limited(Send=(f"{capacity}", f"{refill}")))
    began_s = time.monotonic()

    def ask(base: str) -> tuple[int, float, float]:
        """How many went through, when the last one did, and when it was over."""
        headers = {"X-Amz-Target": "AmazonSQS.SendMessage", "Content-Type": "application/x-amz-json-1.0"}
        through, last_s = 0, began_s
        with requests.Session() as line:
            while time.monotonic() < began_s + seconds:
                answer = line.post(base, json={"QueueUrl": url, "MessageBody": "x"}, headers=headers, timeout=10)
                assert answer.status_code == 200 or answer.json()["__type"] == "Throttling"
                if answer.status_code == 200:
                    through, last_s = through + 1, time.monotonic()
        return through, last_s, time.monotonic()

    with ThreadPoolExecutor() as pool:
        found = list(pool.map(ask, [one.url for one in (door, other_door, third_door)]))
    through = sum(one[0] for one in found)
    assert all(one[0] for one in found)
    assert through <= capacity + refill * (max(one[2] for one in found) - began_s)
    assert through >= 0.98 * (capacity + refill * (max(one[1] for one in found) - began_s))
