"""FIFO queues in partitions over the door (seed 003, 3.D)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from fleet.broker.sqs import catalogue, handle, records
from fleet.broker.sqs.partition import partition_for
from fleet.state.connect import connected
from fleet.state.keys import BrokerKeys
from fleet.state.registry import Registry
from tests.integration.sqs.shop import Shop, a_name, name_of, refused
from tests.servers.local import RedisServer
from tests.waiting import until

GROUPS = [f"group-{i}" for i in range(20)]


def split(shop: Shop, partitions: int = 4, **more: str) -> str:
    given = {"PartitionCount": f"{partitions}", "ContentBasedDeduplication": "true", **more}
    return shop.queue(given, fifo=True)


@pytest.mark.parametrize("count", ["0", "1"])
def test_no_partition_and_one_are_the_same(sqs: Shop, count: str) -> None:
    name = a_name(fifo=True)
    url = sqs.queue(fifo=True, name=name, PartitionCount=count)
    assert "PartitionCount" not in sqs.attributes(url)
    for same in ("0", "1"):
        assert sqs.queue(fifo=True, name=name, PartitionCount=same) == url
    assert sqs.queue(fifo=True, name=name) == url


@pytest.mark.parametrize("count", ["3", "5", "64", "-2", "2.0", "two"])
def test_partitions_are_a_power_of_two_up_to_32(sqs: Shop, count: str) -> None:
    text = "Invalid value for the parameter PartitionCount. Reason: PartitionCount must be a power of two, at most 32."
    with refused("InvalidAttributeValue", text):
        sqs.queue(fifo=True, PartitionCount=count)


def test_a_standard_queue_has_no_partitions(sqs: Shop) -> None:
    with refused("InvalidAttributeValue", lambda text: "PartitionCount > 1 is only valid on FIFO queues." in text):
        sqs.queue(PartitionCount="2")


def test_partitions_exclude_deduplication_by_queue(sqs: Shop) -> None:
    with refused("InvalidParameterValue", lambda text: "needs DeduplicationScope messageGroup" in text):
        split(sqs, DeduplicationScope="queue")


@pytest.mark.parametrize(
    ("name", "same", "another"),
    [
        ("PartitionCount", "4", "8"),
        ("DeduplicationScope", "messageGroup", "queue"),
        ("FifoThroughputLimit", "perMessageGroupId", "perQueue"),
    ],
)
def test_with_partitions_three_attributes_stay_and_a_call_that_changes_one_changes_nothing(
    sqs: Shop, name: str, same: str, another: str
) -> None:
    url = split(sqs, DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    sqs.set(url, **{name: same})
    with refused("InvalidAttributeValue", lambda text: name in text):
        sqs.set(url, **{name: another, "VisibilityTimeout": "77"})
    assert sqs.attributes(url, name, "VisibilityTimeout") == {name: same, "VisibilityTimeout": "30"}


def test_a_group_stands_in_the_partition_of_its_hash(sqs: Shop, sqs_redis: RedisServer) -> None:
    url = split(sqs)
    for group in GROUPS:
        sqs.send(url, group, group)
    expected = Counter(partition_for(group, partitions=4) for group in GROUPS)
    with sqs_redis.client() as client:
        found = {place: client.hlen(f"{{b:sqs/{name_of(url)}:{place}}}:bodies") for place in range(4)}
    assert found == dict(expected)


def test_with_one_limit_for_the_queue_one_partition_takes_everything(sqs: Shop, sqs_redis: RedisServer) -> None:
    url = split(sqs, FifoThroughputLimit="perQueue")
    for group in GROUPS:
        sqs.send(url, group, group)
    with sqs_redis.client() as client:
        assert client.hlen(f"{{b:sqs/{name_of(url)}:0}}:bodies") == len(GROUPS)


def test_a_deduplication_id_is_known_within_its_group_and_brings_the_original_back(sqs: Shop, other: Shop) -> None:
    url = split(sqs, 8)
    first = {group: sqs.send(url, "same", group) for group in GROUPS}
    assert len({one["MessageId"] for one in first.values()}) == len(GROUPS)
    again = {group: other.send(url, "same", group) for group in GROUPS}
    for group in GROUPS:
        assert again[group]["MessageId"] == first[group]["MessageId"]
        assert again[group]["SequenceNumber"] == first[group]["SequenceNumber"]
    assert sqs.counts(url) == (len(GROUPS), 0, 0)


def test_sequence_numbers_rise_within_a_group(sqs: Shop, other: Shop) -> None:
    url = split(sqs)
    numbers = [(sqs, other)[i % 2].send(url, f"{i}", "g")["SequenceNumber"] for i in range(10)]
    assert numbers == sorted(set(numbers))


def test_a_batch_goes_to_all_its_partitions_and_is_answered_in_its_order(sqs: Shop) -> None:
    url = split(sqs, 8)
    entries = [{"Id": f"e{i}", "MessageBody": f"{i}", "MessageGroupId": GROUPS[i]} for i in range(10)]
    found = sqs.client.send_message_batch(QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in found["Successful"]] == [f"e{i}" for i in range(10)]
    messages = sqs.receive(url)
    assert sorted(one["Body"] for one in messages) == [f"{i}" for i in range(10)]
    handles = [{"Id": one["Body"], "ReceiptHandle": one["ReceiptHandle"]} for one in messages]
    assert len(sqs.client.delete_message_batch(QueueUrl=url, Entries=handles)["Successful"]) == 10
    assert sqs.counts(url) == (0, 0, 0)


def test_a_receive_looks_at_every_partition_from_any_door(sqs: Shop, other: Shop) -> None:
    url = split(sqs, 32)
    for group in GROUPS:
        sqs.send(url, group, group)
    found = [body for shop in (sqs, other) * 2 for body in shop.bodies(url)]
    assert sorted(found) == sorted(GROUPS)


def test_receives_begin_at_another_partition_each_time(sqs: Shop) -> None:
    url = split(sqs)
    for group in GROUPS:
        for i in range(3):
            sqs.send(url, f"{group}/{i}", group)
    begun: set[int] = set()
    for _ in range(4):
        (found,) = sqs.receive(url, 1, MessageSystemAttributeNames=["MessageGroupId"])
        begun.add(partition_for(found["Attributes"]["MessageGroupId"], partitions=4))
    assert len(begun) == len({partition_for(group, partitions=4) for group in GROUPS})


def test_a_wait_is_of_the_whole_call_however_many_partitions_there_are(sqs: Shop) -> None:
    url = split(sqs)
    began_s = time.monotonic()
    assert sqs.bodies(url, WaitTimeSeconds=2) == []
    assert 1.95 <= time.monotonic() - began_s <= 3


def test_a_long_poll_is_woken_by_any_partition(sqs: Shop, other: Shop) -> None:
    url = split(sqs, 8)
    for group in GROUPS[:3]:
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(sqs.receive, url, WaitTimeSeconds=20)
            time.sleep(0.2)
            began_s = time.monotonic()
            other.send(url, group, group)
            assert [one["Body"] for one in waiting.result(30)] == [group]
        assert time.monotonic() - began_s < 3


def test_a_handle_of_another_layout_is_none(sqs: Shop, sqs_redis: RedisServer) -> None:
    url = split(sqs)
    sqs.send(url, "x", "g")
    found = sqs.one(url)
    name, text = name_of(url), found["ReceiptHandle"]
    with sqs_redis.client() as client:
        incarnation = records.read(str(client.hget(BrokerKeys.queues, name))).incarnation
    given = handle.decode(text, queue=name, incarnation=incarnation, partitions=4)
    assert given.partition == partition_for("g", partitions=4)
    for wrong in (
        msgspec.structs.replace(given, partition=4),
        msgspec.structs.replace(given, incarnation=incarnation + 1),
    ):
        with refused("ReceiptHandleIsInvalid"):
            sqs.delete(url, {"ReceiptHandle": handle.encode(wrong, queue=name)})
    with refused("ReceiptHandleIsInvalid"):
        sqs.delete(split(sqs), found)
    sqs.delete(url, found)


def test_a_purge_empties_every_partition(sqs: Shop) -> None:
    url = split(sqs)
    for group in GROUPS:
        sqs.send(url, group, group)
    sqs.receive(url)
    sqs.client.purge_queue(QueueUrl=url)
    assert sqs.counts(url) == (0, 0, 0)
    assert sqs.bodies(url) == []
    with refused("AWS.SimpleQueueService.PurgeQueueInProgress", status=403):
        sqs.client.purge_queue(QueueUrl=url)
    # What was forgotten may be sent again.
    sqs.send(url, GROUPS[0], GROUPS[0])
    assert sqs.bodies(url) == [GROUPS[0]]


def test_a_deletion_leaves_nothing_but_that_it_was_deleted(sqs: Shop, sqs_redis: RedisServer) -> None:
    url = split(sqs)
    for group in GROUPS:
        sqs.send(url, group, group)
    sqs.receive(url, 5, ReceiveRequestAttemptId="a")
    sqs.client.delete_queue(QueueUrl=url)
    with sqs_redis.client() as client:

        def left() -> set[str]:
            kinds = {key.partition("}:")[2] for key in client.keys(f"{{b:sqs/{name_of(url)}:*")}
            return {kind for kind in kinds if not kind.startswith("attempt")}

        until(lambda: left() == {"state"}, 10, lambda: f"{left()} are left")
        ends = [client.pttl(key) for key in client.keys(f"{{b:sqs/{name_of(url)}:*")]
    assert all(0 < end <= 24 * 3600 * 1000 for end in ends)


def test_partitions_are_created_once_every_door_that_lives_can_serve_them(sqs: Shop, sqs_redis: RedisServer) -> None:
    async def old_door(*, lives: bool) -> None:
        async with connected(sqs_redis.url) as client:
            registry = Registry(client)
            if lives:
                await registry.beat("an old door", {"role": "sqs", "name": "an old door"}, ttl_ms=60_000)
            else:
                await registry.leave("an old door")

    asyncio.run(old_door(lives=True))
    try:
        with refused("AWS.SimpleQueueService.UnsupportedOperation"):
            split(sqs)
        split(sqs, 1)
    finally:
        asyncio.run(old_door(lives=False))
    split(sqs)


def test_a_door_that_cannot_serve_partitions_serves_no_queue_of_them(
    timed: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, plain = split(timed), timed.queue()
    monkeypatch.setattr(catalogue, "FEATURES", frozenset())
    with refused("ServiceUnavailable", status=503):
        timed.send(url, "x", "g")
    timed.send(plain, "x")


def test_partitions_of_one_group_keep_their_order_under_many_consumers_at_two_doors(sqs: Shop, other: Shop) -> None:
    url = split(sqs, 8, VisibilityTimeout="60")
    each = 15
    for i in range(each):
        for start in range(0, len(GROUPS), 10):
            entries = [
                {"Id": f"e{n}", "MessageBody": f"{group}/{i}", "MessageGroupId": group}
                for n, group in enumerate(GROUPS[start : start + 10])
            ]
            assert "Failed" not in sqs.client.send_message_batch(QueueUrl=url, Entries=entries)
    total = each * len(GROUPS)
    seen: dict[str, list[int]] = defaultdict(list)
    lock = threading.Lock()

    def consume(shop: Shop) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            messages = shop.receive(url)
            with lock:
                for one in messages:
                    group, _, place = one["Body"].partition("/")
                    seen[group].append(int(place))
                done = sum(map(len, seen.values())) >= total
            if messages:
                handles = [{"Id": f"{i}", "ReceiptHandle": one["ReceiptHandle"]} for i, one in enumerate(messages)]
                assert "Failed" not in shop.client.delete_message_batch(QueueUrl=url, Entries=handles)
            elif done:
                return

    with ThreadPoolExecutor() as pool:
        for job in [pool.submit(consume, shop) for shop in (sqs, other) * 3]:
            job.result(90)
    assert seen == {group: list(range(each)) for group in GROUPS}
