"""What doors count reaches the page of `fleet server`, and each shows its own at a port."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections import Counter
from typing import Any

import requests

from fleet.broker.sqs.partition import partition_for
from fleet.local.supervise import fleet_command
from fleet.metrics.exposition import Exposition
from fleet.server import metrics
from fleet.state.connect import connected
from fleet.state.totals import totals
from tests.integration.sqs.shop import Shop, name_of, refused
from tests.servers.local import RedisServer, _accepts
from tests.servers.ports import free_port
from tests.waiting import until

LIMITS = {
    "ThrottleRecvCapacity": "10",
    "ThrottleRecvRefillPerSecond": "0.001",
    "ThrottleDefaultCapacity": "12",
    "ThrottleDefaultRefillPerSecond": "0.001",
}


def page_of(server: RedisServer) -> dict[str, float]:
    """As `fleet server` makes it."""

    async def made() -> str:
        page = Exposition()
        async with connected(server.url) as client:
            await metrics._sqs(page, client, await totals(client))
        return page.text()

    return read(asyncio.run(made()))


def read(text: str) -> dict[str, float]:
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def of(page: dict[str, float], metric: str, queue: str) -> dict[str, float]:
    """What stands behind the queue of a sample → its value."""
    begin = f'fleet_sqs_{metric}{{queue="{queue}",'
    return {name.removeprefix(begin).rstrip("}"): value for name, value in page.items() if name.startswith(begin)}


def test_messages_are_counted_by_queue_partition_and_action_over_all_doors(
    sqs: Shop, other: Shop, sqs_redis: RedisServer
) -> None:
    url = sqs.fifo({"PartitionCount": "4"})
    groups = [f"group-{i}" for i in range(12)]
    for i, group in enumerate(groups):
        for _ in range(2):  # a duplicate is not one more
            (sqs, other)[i % 2].send(url, f"{i}", group)
    taken: list[dict[str, Any]] = []
    while found := (sqs, other)[len(taken) % 2].receive(url, 5):
        taken += found
    assert len(taken) == 12
    for one in taken[:6]:
        sqs.delete(url, one)
    entries = [{"Id": one["MessageId"], "ReceiptHandle": one["ReceiptHandle"]} for one in taken[6:8]]
    other.client.delete_message_batch(QueueUrl=url, Entries=entries)
    sent = Counter(partition_for(group, partitions=4) for group in groups)
    deleted = Counter(partition_for(groups[int(one["Body"])], partitions=4) for one in taken[:8])
    expected = {
        f'partition="{partition}",action="{action}"': float(count)
        for action, counts in (("sent", sent), ("received", sent), ("deleted", deleted))
        for partition, count in counts.items()
    }
    until(lambda: of(page_of(sqs_redis), "messages_total", name_of(url)) == expected)


def test_what_was_throttled_and_the_tokens_that_are_left_are_shown_by_bucket(
    sqs: Shop, other: Shop, sqs_redis: RedisServer
) -> None:
    url = sqs.queue(LIMITS)
    assert of(page_of(sqs_redis), "tokens", name_of(url)) == {'bucket="*"': 12, 'bucket="Receive"': 10}
    for _ in range(5):
        sqs.send(url, "x")
        other.receive(url)
    entries = [{"Id": f"{i}", "MessageBody": "x"} for i in range(8)]
    for shop in (sqs, other, other):
        with refused("Throttling"):
            shop.client.send_message_batch(QueueUrl=url, Entries=entries)
    until(lambda: of(page_of(sqs_redis), "throttled_total", name_of(url)) == {'bucket="*"': 3})
    left = of(page_of(sqs_redis), "tokens", name_of(url))
    assert {name: round(value, 1) for name, value in left.items()} == {'bucket="*"': 7, 'bucket="Receive"': 5}
    # A gauge: it rises again.
    sqs.set(url, ThrottleRecvRefillPerSecond="10", ThrottleRecvCapacity="11")
    for _ in range(11):
        other.receive(url)
    until(lambda: of(page_of(sqs_redis), "tokens", name_of(url))['bucket="Receive"'] == 11)


def test_a_door_shows_its_own_at_a_port(sqs_redis: RedisServer) -> None:
    port, metrics_port = free_port(), free_port()
    command = fleet_command("sqs", "--port", f"{port}", "--metrics-port", f"{metrics_port}")
    environment = {**os.environ, "FLEET_REDIS_URL": sqs_redis.url}

    def ask(verb: str) -> None:
        headers = {"X-Amz-Target": f"AmazonSQS.{verb}", "Content-Type": "application/x-amz-json-1.0"}
        requests.post(f"http://127.0.0.1:{port}", json={}, headers=headers, timeout=10)

    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: _accepts(port) and _accepts(metrics_port))
            for verb in ("ListQueues", "GetQueueUrl"):
                ask(verb)
            found = read(requests.get(f"http://127.0.0.1:{metrics_port}/metrics", timeout=10).text)
        finally:
            process.terminate()
    assert found['fleet_sqs_requests_total{verb="ListQueues",outcome="ok"}'] == 1
    assert found['fleet_sqs_requests_total{verb="GetQueueUrl",outcome="refused"}'] == 1
    assert found['fleet_sqs_request_seconds_count{verb="ListQueues"}'] == 1
