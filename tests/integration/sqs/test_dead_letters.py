"""Dead letters, the policies about them, and the tasks that move them back."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from fleet.broker.sqs import move_tasks
from fleet.broker.sqs.catalogue import Queues, engine_of
from fleet.state.connect import connected
from fleet.state.engine import Rules
from fleet.state.keys import BrokerKeys
from tests.integration.sqs.shop import Shop, a_name, arn_of, name_of, refused
from tests.servers.local import RedisServer
from tests.servers.sqs_door import ClockedDoor
from tests.waiting import until


def policy(dead: str, most: int = 1) -> str:
    return json.dumps({"deadLetterTargetArn": arn_of(dead), "maxReceiveCount": most})


def bury(shop: Shop, url: str, dead: str) -> dict[str, Any]:
    """Receive what is there until it is a dead letter; it, as its queue gives it."""
    while shop.receive(url, VisibilityTimeout=0):
        pass
    return shop.one(dead, WaitTimeSeconds=10)


@pytest.mark.parametrize("fifo", [False, True])
def test_the_receive_that_would_be_one_too_many_moves_a_message(sqs: Shop, fifo: bool) -> None:
    make = sqs.fifo if fifo else sqs.queue
    dead = make()
    url = make(RedrivePolicy=policy(dead, 2), VisibilityTimeout="0")
    sqs.send(url, "x", "g" if fifo else "")
    assert [sqs.bodies(url) for _ in range(2)] == [["x"], ["x"]]
    # Its time is over, and the clock alone moves nothing.
    assert sqs.counts(url) == (1, 0, 0)
    assert sqs.bodies(dead) == []
    assert sqs.bodies(url) == []
    assert sqs.bodies(dead, WaitTimeSeconds=10) == ["x"]


def test_that_receive_goes_on_and_the_group_is_free(sqs: Shop) -> None:
    dead = sqs.fifo()
    url = sqs.fifo(RedrivePolicy=policy(dead), VisibilityTimeout="0")
    sqs.send(url, "1", "g")
    assert sqs.bodies(url) == ["1"]
    for body in ("2", "3"):
        sqs.send(url, body, "g")
    assert sqs.bodies(url, VisibilityTimeout=30) == ["2", "3"]
    assert sqs.bodies(dead, WaitTimeSeconds=10) == ["1"]


def test_a_dead_letter_of_a_standard_queue_keeps_its_id_and_its_time(sqs: Shop) -> None:
    dead = sqs.queue()
    url = sqs.queue(RedrivePolicy=policy(dead))
    sent = sqs.send(url, "x", MessageAttributes={"a": {"DataType": "String", "StringValue": "v"}})
    (first,) = sqs.receive(url, VisibilityTimeout=0, MessageSystemAttributeNames=["All"])
    found = bury(sqs, url, dead)
    assert found["MessageId"] == sent["MessageId"]
    assert found["MessageAttributes"] == {"a": {"DataType": "String", "StringValue": "v"}}
    assert found["Attributes"]["SentTimestamp"] == first["Attributes"]["SentTimestamp"]
    assert found["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(url)


def test_a_dead_letter_of_a_fifo_queue_keeps_its_id_and_gets_a_new_time(timed: Shop, clocked: ClockedDoor) -> None:
    dead = timed.fifo()
    url = timed.fifo(RedrivePolicy=policy(dead))
    sent = timed.send(url, "x", "g")
    clocked.pass_s(100)
    (first,) = timed.receive(url, VisibilityTimeout=0, MessageSystemAttributeNames=["All"])
    found = bury(timed, url, dead)
    assert found["MessageId"] == sent["MessageId"]
    told = found["Attributes"]
    assert int(told["SentTimestamp"]) >= int(first["Attributes"]["SentTimestamp"]) + 100_000
    assert told["MessageDeduplicationId"] == sent["MessageId"]
    assert told["MessageGroupId"] == "g"


def test_a_dead_letter_of_a_standard_queue_expires_by_when_it_was_sent(timed: Shop, clocked: ClockedDoor) -> None:
    dead = timed.queue(MessageRetentionPeriod="120")
    url = timed.queue(RedrivePolicy=policy(dead), MessageRetentionPeriod="120")
    timed.send(url, "x")
    clocked.pass_s(100)
    assert timed.bodies(url, VisibilityTimeout=0) == ["x"]
    assert timed.bodies(url) == []
    clocked.each_second()
    assert timed.counts(dead) == (1, 0, 0)
    clocked.pass_s(21)
    assert timed.bodies(dead) == []


def test_a_dead_letter_queue_that_is_gone_costs_no_message(sqs: Shop) -> None:
    dead = sqs.queue()
    url = sqs.queue(RedrivePolicy=policy(dead), VisibilityTimeout="0")
    sqs.send(url, "x")
    assert sqs.bodies(url) == ["x"]
    sqs.client.delete_queue(QueueUrl=dead)
    assert sqs.bodies(url) == []
    assert sqs.counts(url) == (0, 1, 0)
    name = dead.rpartition("/")[2]
    sqs.queue(name=name)
    assert sqs.bodies(dead, WaitTimeSeconds=20) == ["x"]
    until(lambda: sqs.counts(url) == (0, 0, 0), 10)


# The policies ----------------------------------------------------------------------------------------


def test_a_policy_is_described_as_it_was_set_and_goes_by_an_empty_one(sqs: Shop) -> None:
    dead = sqs.queue()
    url = sqs.queue(RedrivePolicy=policy(dead, 3))
    assert json.loads(sqs.attributes(url)["RedrivePolicy"]) == json.loads(policy(dead, 3))
    sqs.set(url, RedrivePolicy="")
    assert "RedrivePolicy" not in sqs.attributes(url)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no json", "Redrive policy is not a valid JSON map."),
        ('{"maxReceiveCount":"3"}', "Redrive policy does not contain mandatory attribute: deadLetterTargetArn."),
        (
            '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:nothing"}',
            "Redrive policy does not contain mandatory attribute: maxReceiveCount.",
        ),
        (
            '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:nothing","maxReceiveCount":0}',
            "Invalid value for maxReceiveCount: 0, valid values are from 1 to 1000 both inclusive.",
        ),
        (
            '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:nothing","maxReceiveCount":3}',
            "Dead letter target does not exist.",
        ),
    ],
)
def test_a_policy_that_cannot_be_is_refused(sqs: Shop, text: str, reason: str) -> None:
    with refused("InvalidParameterValue", f"Value {text} for parameter RedrivePolicy is invalid. Reason: {reason}"):
        sqs.set(sqs.queue(), RedrivePolicy=text)


def test_dead_letters_go_to_a_queue_of_the_same_kind(sqs: Shop) -> None:
    with refused("InvalidParameterValue", lambda text: text.endswith("must be same type of queue as the source.")):
        sqs.queue(RedrivePolicy=policy(sqs.fifo()))


def test_an_allow_policy_is_asked_when_a_policy_is_set(sqs: Shop) -> None:
    nobody = sqs.queue(RedriveAllowPolicy='{"redrivePermission":"denyAll"}')
    with refused("InvalidParameterValue", lambda text: "does not let this queue use it" in text):
        sqs.queue(RedrivePolicy=policy(nobody))
    url = sqs.queue()
    allowed = json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [arn_of(url)]})
    one = sqs.queue(RedriveAllowPolicy=allowed)
    sqs.set(url, RedrivePolicy=policy(one))
    with refused("InvalidParameterValue", lambda text: "does not let this queue use it" in text):
        sqs.set(sqs.queue(), RedrivePolicy=policy(one))


def test_the_sources_of_a_dead_letter_queue_are_listed(sqs: Shop) -> None:
    dead = sqs.queue()
    assert sqs.client.list_dead_letter_source_queues(QueueUrl=dead).get("queueUrls", []) == []
    urls = sorted(sqs.queue(RedrivePolicy=policy(dead)) for _ in range(3))
    assert sqs.client.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == urls
    pages = sqs.client.get_paginator("list_dead_letter_source_queues").paginate(
        QueueUrl=dead, PaginationConfig={"PageSize": 2}
    )
    assert [page["queueUrls"] for page in pages] == [urls[:2], urls[2:]]


# Move tasks ------------------------------------------------------------------------------------------


def start(shop: Shop, dead: str, **more: Any) -> str:
    handle: str = shop.client.start_message_move_task(SourceArn=arn_of(dead), **more)["TaskHandle"]
    return handle


def tasks(shop: Shop, dead: str, most: int = 1) -> list[dict[str, Any]]:
    found = shop.client.list_message_move_tasks(SourceArn=arn_of(dead), MaxResults=most)
    listed: list[dict[str, Any]] = found.get("Results", [])
    return listed


def filled(shop: Shop, count: int = 3) -> tuple[str, str]:
    """A queue whose messages are all dead letters, and where those are."""
    dead = shop.queue()
    url = shop.queue(RedrivePolicy=policy(dead))
    for i in range(count):
        shop.send(url, f"{i}")
    while shop.receive(url, VisibilityTimeout=0):
        pass
    until(lambda: shop.counts(dead)[0] == count, 10)
    return url, dead


def test_a_task_brings_each_message_back_to_its_own_source_with_its_count_at_zero(sqs: Shop) -> None:
    dead = sqs.queue()
    sources = [sqs.queue(RedrivePolicy=policy(dead), VisibilityTimeout="0") for _ in range(2)]
    for i, url in enumerate(sources):
        sqs.send(url, f"{i}")
        sqs.bodies(url)
        sqs.bodies(url)
    until(lambda: sqs.counts(dead)[0] == 2, 10)
    start(sqs, dead)
    until(lambda: tasks(sqs, dead)[0]["Status"] == "COMPLETED", 15)
    (done,) = tasks(sqs, dead)
    assert (done["ApproximateNumberOfMessagesMoved"], done["ApproximateNumberOfMessagesToMove"]) == (2, 2)
    assert "TaskHandle" not in done
    for i, url in enumerate(sources):
        found = sqs.one(url, WaitTimeSeconds=10)
        assert (found["Body"], found["Attributes"]["ApproximateReceiveCount"]) == (f"{i}", "1")


def test_a_task_brings_everything_to_the_queue_it_names(sqs: Shop) -> None:
    _, dead = filled(sqs)
    sqs.send(dead, "direct")
    target = sqs.queue()
    start(sqs, dead, DestinationArn=arn_of(target))
    until(lambda: tasks(sqs, dead)[0]["Status"] == "COMPLETED", 15)
    assert tasks(sqs, dead)[0]["DestinationArn"] == arn_of(target)
    assert sorted(sqs.bodies(target, WaitTimeSeconds=10)) == ["0", "1", "2", "direct"]
    assert sqs.counts(dead) == (0, 0, 0)


def test_a_task_moves_at_its_rate_and_stops_when_it_is_cancelled(timed: Shop, clocked: ClockedDoor) -> None:
    dead = timed.queue()
    url = timed.queue(RedrivePolicy=policy(dead))
    for i in range(5):
        timed.send(url, f"{i}")
    while timed.receive(url, VisibilityTimeout=0):
        pass
    clocked.each_second()
    handle = start(timed, dead, MaxNumberOfMessagesPerSecond=2)
    clocked.each_second()
    assert timed.counts(url) == (2, 0, 0)
    (running,) = tasks(timed, dead)
    assert (running["Status"], running["TaskHandle"]) == ("RUNNING", handle)
    assert running["MaxNumberOfMessagesPerSecond"] == 2
    with refused("InvalidParameterValue", lambda text: text.startswith("There is already a task running.")):
        start(timed, dead)
    found = timed.client.cancel_message_move_task(TaskHandle=handle)
    assert found["ApproximateNumberOfMessagesMoved"] == 2
    clocked.each_second()
    clocked.each_second()
    assert timed.counts(url) == (2, 0, 0)
    assert tasks(timed, dead)[0]["Status"] == "CANCELLED"
    with refused("AWS.SimpleQueueService.UnsupportedOperation", "Only active tasks can be cancelled."):
        timed.client.cancel_message_move_task(TaskHandle=handle)


def test_the_latest_task_is_listed_first(timed: Shop, clocked: ClockedDoor) -> None:
    _, dead = filled(timed, 1)
    for _ in range(2):
        start(timed, dead)
        clocked.each_second()
        clocked.each_second()
    listed = tasks(timed, dead, 10)
    assert [one["Status"] for one in listed] == ["COMPLETED", "COMPLETED"]
    assert listed[0]["StartedTimestamp"] >= listed[1]["StartedTimestamp"]
    assert len(tasks(timed, dead)) == 1


def test_a_message_that_was_sent_to_the_dead_letter_queue_has_nowhere_to_go_back_to(sqs: Shop) -> None:
    _, dead = filled(sqs, 1)
    sqs.send(dead, "direct")
    start(sqs, dead)
    until(lambda: tasks(sqs, dead)[0]["Status"] == "COMPLETED", 15)
    assert sqs.bodies(dead) == ["direct"]


def test_only_a_dead_letter_queue_can_be_the_source_of_a_task(sqs: Shop) -> None:
    url = sqs.queue()
    with refused("InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue."):
        start(sqs, url)
    with refused("ResourceNotFoundException", lambda text: "SourceArn" in text, status=404):
        start(sqs, f"{sqs.url}/000000000000/{a_name()}-nothing")
    _, dead = filled(sqs, 1)
    with refused("ResourceNotFoundException", lambda text: "DestinationArn" in text, status=404):
        start(sqs, dead, DestinationArn="arn:aws:sqs:us-east-1:000000000000:nothing")
    with refused("InvalidParameterValue", lambda text: "SourceArn" in text):
        sqs.client.list_message_move_tasks(SourceArn="nothing")


def test_a_task_that_is_not_there_cannot_be_cancelled(sqs: Shop) -> None:
    with refused("InvalidParameterValue", "Value for parameter TaskHandle is invalid."):
        sqs.client.cancel_message_move_task(TaskHandle="nothing")
    _, dead = filled(sqs, 1)
    handle = "A" * 32 + "." + dead.rpartition("/")[2]
    with refused("ResourceNotFoundException", "Task does not exist.", status=404):
        sqs.client.cancel_message_move_task(TaskHandle=handle)


def test_a_message_that_was_moved_back_is_a_dead_letter_no_longer(timed: Shop, clocked: ClockedDoor) -> None:
    url, dead = filled(timed, 1)
    start(timed, dead)
    clocked.each_second()
    told = timed.one(url)["Attributes"]
    assert "DeadLetterQueueSourceArn" not in told
    assert told["ApproximateReceiveCount"] == "1"


def test_a_group_dies_and_comes_back_in_its_order(timed: Shop, clocked: ClockedDoor) -> None:
    dead = timed.fifo()
    url = timed.fifo(RedrivePolicy=policy(dead))
    bodies = [f"{i}" for i in range(5)]
    for body in bodies:
        timed.send(url, body, "g")
    while timed.receive(url, VisibilityTimeout=0):
        pass
    clocked.each_second()
    assert timed.bodies(dead, VisibilityTimeout=0) == bodies
    start(timed, dead)
    clocked.each_second()
    clocked.each_second()
    assert timed.counts(dead) == (0, 0, 0)
    assert timed.bodies(url) == bodies


def test_tasks_go_with_their_queue(timed: Shop, clocked: ClockedDoor) -> None:
    url, dead = filled(timed, 1)
    start(timed, dead)
    clocked.each_second()
    timed.client.delete_queue(QueueUrl=dead)
    timed.queue(name=dead.rpartition("/")[2])
    assert tasks(timed, dead) == []
    timed.delete(url, timed.one(url))


def test_a_task_whose_source_is_deleted_leaves_nothing_to_work_on(
    timed: Shop, clocked: ClockedDoor, redis_server: RedisServer
) -> None:
    _, dead = filled(timed, 1)
    start(timed, dead)
    timed.client.delete_queue(QueueUrl=dead)
    clocked.each_second()
    with redis_server.client() as client:
        assert client.hgetall(BrokerKeys.tasks) == {}


@pytest.mark.parametrize("fifo", [False, True])
def test_what_came_from_a_queue_that_is_gone_stays_and_its_task_fails(
    timed: Shop, clocked: ClockedDoor, fifo: bool
) -> None:
    make = timed.fifo if fifo else timed.queue
    dead = make()
    gone, there = (make(RedrivePolicy=policy(dead)) for _ in range(2))
    for i in range(3):
        for url in (gone, there):
            timed.send(url, f"{url} {i}", "g" if fifo else "")
    for url in (gone, there):
        while timed.receive(url, VisibilityTimeout=0):
            pass
    clocked.each_second()
    timed.client.delete_queue(QueueUrl=gone)
    start(timed, dead)
    for _ in range(2):
        clocked.each_second()
    # It holds up no other; of its own group it does.
    moved = [] if fifo else [f"{there} {i}" for i in range(3)]
    assert timed.bodies(there) == moved
    assert timed.counts(dead) == (6 - len(moved), 0, 0)
    (task,) = tasks(timed, dead)
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "AWS.SimpleQueueService.NonExistentQueue")
    assert task["ApproximateNumberOfMessagesMoved"] == len(moved)
    # Once its queue is there again, so is its way back.
    timed.queue({"ContentBasedDeduplication": "true"} if fifo else {}, fifo=fifo, name=gone.rpartition("/")[2])
    start(timed, dead)
    clocked.each_second()
    assert timed.bodies(gone) == [f"{gone} {i}" for i in range(3)]
    assert timed.counts(dead) == (0, 0, 0)


def test_a_task_without_a_rate_leaves_others_their_turn(
    timed: Shop, clocked: ClockedDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move_tasks, "_A_STEP", 2)
    url, dead = filled(timed)
    start(timed, dead)
    clocked.each_second()
    assert (tasks(timed, dead)[0]["Status"], timed.counts(url)) == ("RUNNING", (2, 0, 0))
    clocked.each_second()
    clocked.each_second()
    assert (tasks(timed, dead)[0]["Status"], timed.counts(url)) == ("COMPLETED", (3, 0, 0))


def test_a_task_whose_target_is_deleted_fails_and_moves_nothing(timed: Shop, clocked: ClockedDoor) -> None:
    _, dead = filled(timed)
    target = timed.queue()
    start(timed, dead, DestinationArn=arn_of(target))
    timed.client.delete_queue(QueueUrl=target)
    clocked.each_second()
    (task,) = tasks(timed, dead)
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "AWS.SimpleQueueService.NonExistentQueue")
    assert timed.counts(dead) == (3, 0, 0)


def test_dead_letters_that_their_door_did_not_live_to_bring_are_brought_by_another(
    sqs: Shop, sqs_redis: RedisServer
) -> None:
    dead = sqs.queue()
    url = sqs.queue(RedrivePolicy=policy(dead), VisibilityTimeout="0")
    sqs.send(url, "x")
    assert sqs.bodies(url) == ["x"]

    async def receive_and_die() -> int:
        async with connected(sqs_redis.url) as client:
            # Not found by the look at everything, each minute.
            await client.zadd(BrokerKeys.sqs_tidy, {name_of(url): time.time() * 1000 + 60_000})
            queues = Queues(client)
            _, record = await queues.find(name_of(url))
            engine = engine_of(client, name_of(url), record, 0)
            return (await engine.receive(1, Rules(0, max_count=1, target=f"sqs/{name_of(dead)}"))).moved

    assert asyncio.run(receive_and_die()) == 1
    assert sqs.bodies(dead, WaitTimeSeconds=20) == ["x"]


def test_partitions_keep_each_group_in_order_there_and_back(timed: Shop, clocked: ClockedDoor) -> None:
    dead = timed.fifo({"PartitionCount": "4"})
    url = timed.fifo({"PartitionCount": "8"}, RedrivePolicy=policy(dead))
    groups = {group: [f"{group}{i}" for i in range(3)] for group in "abcdef"}
    for group, bodies in groups.items():
        for body in bodies:
            timed.send(url, body, group)
    while timed.receive(url, VisibilityTimeout=0):
        pass
    clocked.each_second()
    assert (timed.counts(url), timed.counts(dead)) == ((0, 0, 0), (18, 0, 0))
    start(timed, dead, MaxNumberOfMessagesPerSecond=5)
    for _ in range(5):
        clocked.each_second()
    assert (timed.counts(url), timed.counts(dead)) == ((18, 0, 0), (0, 0, 0))
    found: dict[str, list[str]] = {}
    while messages := timed.receive(url):
        for one in messages:
            found.setdefault(one["Body"][0], []).append(one["Body"])
            timed.delete(url, one)
    assert found == groups


def test_a_policy_counts_what_was_received_before_it_was_set(timed: Shop, clocked: ClockedDoor) -> None:
    dead, url = timed.queue(), timed.queue(VisibilityTimeout="0")
    timed.send(url, "x")
    assert [timed.bodies(url) for _ in range(3)] == [["x"]] * 3
    timed.set(url, RedrivePolicy=policy(dead, 3))
    assert timed.bodies(url) == []
    clocked.each_second()
    assert timed.bodies(dead) == ["x"]
