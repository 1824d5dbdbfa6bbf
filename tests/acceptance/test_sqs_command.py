"""`fleet sqs` and `fleet up --sqs-port` as their user runs them: what they say, serve and leave behind."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.acceptance.fleet_command import Fleet, Process
from tests.servers.local import RedisServer


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path, {"FLEET_LEASE_TTL_MS": "2000"})


def client(address: str) -> Any:
    keys = {"aws_access_key_id": "id", "aws_secret_access_key": "secret"}
    return boto3.client("sqs", endpoint_url=address, region_name="us-east-1", **keys)


def address_in(process: Process, before: str) -> str:
    process.says(before)
    found = re.search(rf"{before} (http://\S+)", process.text())
    assert found is not None
    return found[1]


def test_doors_that_share_a_port_serve_one_queue_and_people_see_what_is_in_it(
    fleet: Fleet, redis_server: RedisServer
) -> None:
    redis_server.reset()
    here = ("--redis", redis_server.url)
    assert fleet.run("sqs", "queues", *here).out == "No queues yet: create one with any SQS client.\n"
    with fleet.running("sqs", "--port", "0", "--processes", "2", *here) as doors:
        address = address_in(doors, "answers at")
        sqs = client(address)
        dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
        assert dead == f"{address}/000000000000/dead"
        policy = '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":3}'
        url = sqs.create_queue(QueueName="orders", Attributes={"RedrivePolicy": policy}, tags={"team": "a"})["QueueUrl"]
        for body in ("one", "two", "three"):
            sqs.send_message(QueueUrl=url, MessageBody=body)
        taken = sqs.receive_message(QueueUrl=url)["Messages"]
        (_, orders) = fleet.run("sqs", "queues", "--json", *here).document
        assert (orders["name"], orders["visible"], orders["notVisible"]) == ("orders", 2, 1)
        assert orders["deadLetterQueue"] == "dead"
        shown = fleet.run("sqs", "show", "orders", *here).out
        assert re.search(r"^VisibilityTimeout +30$", shown, re.MULTILINE)
        assert re.search(r"^tag team +a$", shown, re.MULTILINE)
        assert policy in shown
        asked = fleet.run("sqs", "purge", "orders", *here)
        assert (asked.code, "3 messages of orders would be gone" in asked.err) == (2, True)
        assert fleet.run("sqs", "purge", "orders", "--yes", *here).out == "3 messages are gone.\n"
        sqs.delete_message(QueueUrl=url, ReceiptHandle=taken[0]["ReceiptHandle"])
        missing = fleet.run("sqs", "show", "nothing", *here)
        assert (missing.code, missing.err) == (1, "fleet: there is no queue nothing behind the SQS door\n")
        assert doors.stop() == 0


def test_an_address_that_others_reach_needs_keys(fleet: Fleet, redis_server: RedisServer) -> None:
    answer = fleet.run("sqs", "--host", "0.0.0.0", "--port", "0", "--redis", redis_server.url)
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert "FLEET_SQS_ACCESS_KEYS" in answer.err


def test_processes_that_can_have_no_metrics_port_are_not_started(fleet: Fleet, redis_server: RedisServer) -> None:
    for role in ("sqs", "worker"):
        many = (role, "--processes", "2", "--metrics-port", "65535", "--redis", redis_server.url)
        answer = fleet.run(*many)
        assert (answer.code, answer.err.count("\n"), "the last is 65535" in answer.err) == (2, 1, True), answer.err
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            answer = fleet.run(role, "--processes", "2", "--metrics-port", str(port), "--redis", redis_server.url)
        assert (answer.code, answer.err.count("\n"), "in use" in answer.err) == (1, 1, True), answer.err


def test_up_brings_a_door_where_one_is_asked_for(fleet: Fleet) -> None:
    with fleet.running("up", "--workers", "1", "--sqs-port", "0") as up:
        sqs = client(address_in(up, "SQS:"))
        url = sqs.create_queue(QueueName="hello.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="hi", MessageGroupId="g", MessageDeduplicationId="1")
        assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "hi"
        assert "sqs" in {process["role"] for process in fleet.run("ps", "--json").document}
        assert up.stop() == 0
