"""What no client of ours sends, over a socket: each is told what AWS tells it, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from fleet.broker.sqs.door import Door
from fleet.broker.sqs.http import HttpServer
from fleet.broker.sqs.verbs import Verbs
from fleet.clock import Clock, SystemClock
from fleet.listening import listen
from fleet.state.connect import connected
from tests.chaos.sqs_wire import Refused, Wire
from tests.servers.local import RedisServer
from tests.waiting import eventually

Q, F = "http://localhost/000000000000/q", "http://localhost/000000000000/q.fifo"
MIB = 1024 * 1024
DAY_MS = 86_400_000


class Ahead(SystemClock):
    def wall_ms(self) -> int:
        return super().wall_ms() + DAY_MS


@contextlib.asynccontextmanager
async def running_door(
    verbs: Verbs, *, keys: Mapping[str, str] | None = None, clock: Clock | None = None
) -> AsyncIterator[int]:
    door = Door(verbs.table, keys=keys or {}, clock=clock or SystemClock())
    server = HttpServer(door)
    listening = listen("127.0.0.1", 0)
    serving = asyncio.create_task(server.serve(listening))
    try:
        yield listening.getsockname()[1]
    finally:
        server.stop()
        verbs.queues.end_waits()
        await serving


@pytest.fixture
async def verbs(redis_server: RedisServer) -> AsyncIterator[Verbs]:
    async with connected(redis_server.url) as client:
        found = Verbs(client)
        yield found
        await found.aclose()


@pytest.fixture
async def port(verbs: Verbs) -> AsyncIterator[int]:
    async with running_door(verbs) as port:
        yield port


@pytest.fixture
async def wire(port: int) -> AsyncIterator[Wire]:
    found = Wire([port], random.Random(1))
    await found.call("CreateQueue", {"QueueName": "q"})
    await found.call("CreateQueue", {"QueueName": "q.fifo", "Attributes": {"FifoQueue": "true"}})
    yield found
    found.close()
    await asyncio.sleep(0)


def sent(**more: Any) -> dict[str, Any]:
    return {"QueueUrl": Q, "MessageBody": "b"} | more


def to_fifo(**more: Any) -> dict[str, Any]:
    return {"QueueUrl": F, "MessageBody": "b", "MessageGroupId": "g", "MessageDeduplicationId": "d"} | more


def entries(*ids: str, body: str = "b") -> dict[str, Any]:
    return {"QueueUrl": Q, "Entries": [{"Id": id_, "MessageBody": body} for id_ in ids]}


VALUE = "InvalidParameterValueException"
CASES = [
    ("a body of 1 MiB and a byte", "SendMessage", sent(MessageBody="x" * (MIB + 1)), VALUE),
    ("no body", "SendMessage", sent(MessageBody=""), "MissingRequiredParameterException"),
    ("a NUL", "SendMessage", sent(MessageBody="\0"), "InvalidMessageContents"),
    ("a control character", "SendMessage", sent(MessageBody="a\x1fb"), "InvalidMessageContents"),
    ("half a surrogate", "SendMessage", sent(MessageBody="\ud800"), "SerializationException"),
    ("a non-character", "SendMessage", sent(MessageBody="\uffff"), "InvalidMessageContents"),
    ("a delay of 15 min 1 s", "SendMessage", sent(DelaySeconds=901), VALUE),
    ("a delay below nothing", "SendMessage", sent(DelaySeconds=-1), VALUE),
    ("a delay beyond numbers", "SendMessage", sent(DelaySeconds=10**30), "SerializationException"),
    ("a delay in words", "SendMessage", sent(DelaySeconds="soon"), "SerializationException"),
    ("a group of 129", "SendMessage", to_fifo(MessageGroupId="g" * 129), VALUE),
    ("a group with our separator", "SendMessage", to_fifo(MessageGroupId="g\x1f"), VALUE),
    ("no group", "SendMessage", to_fifo(MessageGroupId=""), VALUE),
    ("a dedup id of 129", "SendMessage", to_fifo(MessageDeduplicationId="d" * 129), VALUE),
    ("a dedup id of a line", "SendMessage", to_fifo(MessageDeduplicationId="d\n"), VALUE),
    (
        "an attribute of no type",
        "SendMessage",
        sent(MessageAttributes={"a": {"DataType": "Colour", "StringValue": "red"}}),
        VALUE,
    ),
    ("no messages", "ReceiveMessage", {"QueueUrl": Q, "MaxNumberOfMessages": 0}, VALUE),
    ("eleven messages", "ReceiveMessage", {"QueueUrl": Q, "MaxNumberOfMessages": 11}, VALUE),
    ("a wait of 21 s", "ReceiveMessage", {"QueueUrl": Q, "WaitTimeSeconds": 21}, VALUE),
    ("12 h and 1 s", "ReceiveMessage", {"QueueUrl": Q, "VisibilityTimeout": 43201}, VALUE),
    (
        "an unknown attribute",
        "GetQueueAttributes",
        {"QueueUrl": Q, "AttributeNames": ["Colour"]},
        "InvalidAttributeName",
    ),
    (
        "an attribute to set",
        "SetQueueAttributes",
        {"QueueUrl": Q, "Attributes": {"Colour": "red"}},
        "InvalidAttributeName",
    ),
    ("a name of 81", "CreateQueue", {"QueueName": "q" * 81}, VALUE),
    ("a name with a brace", "CreateQueue", {"QueueName": "}q{"}, VALUE),
    ("a queue that is not", "SendMessage", sent(QueueUrl="http://localhost/0/none"), "QueueDoesNotExist"),
    ("a handle of nobody", "DeleteMessage", {"QueueUrl": Q, "ReceiptHandle": "AAAA"}, "ReceiptHandleIsInvalid"),
    ("a handle of a mile", "DeleteMessage", {"QueueUrl": Q, "ReceiptHandle": "A" * MIB}, "ReceiptHandleIsInvalid"),
    ("an empty batch", "SendMessageBatch", entries(), "EmptyBatchRequest"),
    ("eleven in a batch", "SendMessageBatch", entries(*map(str, range(11))), "TooManyEntriesInBatchRequest"),
    ("one id twice", "SendMessageBatch", entries("a", "a"), "BatchEntryIdsNotDistinct"),
    ("an id of a blank", "SendMessageBatch", entries("a b"), "InvalidBatchEntryId"),
    ("2 MiB in a batch", "SendMessageBatch", entries("a", "b", body="x" * MIB), "BatchRequestTooLong"),
]


@pytest.mark.parametrize(("verb", "params", "type_"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
async def test_each_is_refused_with_the_error_of_aws(
    wire: Wire, caplog: pytest.LogCaptureFixture, verb: str, params: dict[str, Any], type_: str
) -> None:
    with pytest.raises(Refused) as refused:
        await wire.call(verb, params)
    assert (refused.value.status, refused.value.type) == (400, type_)
    assert (await wire.call("SendMessage", sent()))["MessageId"]
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []


async def test_a_handle_of_another_queue_is_no_handle_here(wire: Wire) -> None:
    await wire.call("SendMessage", sent())
    (message,) = (await wire.call("ReceiveMessage", {"QueueUrl": Q}))["Messages"]
    for verb, more in (("DeleteMessage", {}), ("ChangeMessageVisibility", {"VisibilityTimeout": 0})):
        with pytest.raises(Refused) as refused:
            await wire.call(verb, {"QueueUrl": F, "ReceiptHandle": message["ReceiptHandle"]} | more)
        assert refused.value.type == "ReceiptHandleIsInvalid"
    await wire.call("DeleteMessage", {"QueueUrl": Q, "ReceiptHandle": message["ReceiptHandle"]})


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/x-amz-json-1.0", b"[" * 500_000, 400),
        ("application/x-amz-json-1.0", b'{"QueueUrl":' * 100_000, 400),
        ("application/x-amz-json-1.0", b'{"QueueUrl": "\xff\xfe"}', 400),
        ("application/x-amz-json-1.0", b'{"MaxNumberOfMessages": 1e999, "QueueUrl": "q"}', 400),
        ("text/xml", b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>', 400),
        (
            "application/x-www-form-urlencoded",
            b"Action=SendMessageBatch&SendMessageBatchRequestEntry.999999999.Id=a",
            400,
        ),
        ("application/x-www-form-urlencoded", b"Action=CreateQueue&QueueName=%00%ff", 400),
        ("application/x-www-form-urlencoded", b"Action=ListQueues&QueueNamePrefix=%3Ca%3E%26%5D%5D%3E", 200),
    ],
)
async def test_no_content_is_our_failure(port: int, wire: Wire, kind: str, body: bytes, status: int) -> None:
    target = b"X-Amz-Target: AmazonSQS.ReceiveMessage\r\n" if "json" in kind else b""
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n".encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head + target + b"Connection: close\r\n\r\n" + body)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    assert int(answer.split()[1]) == status
    assert b"passwd" not in answer and b"root:" not in answer
    assert (await wire.call("SendMessage", sent()))["MessageId"]


async def test_who_hangs_up_in_a_long_poll_takes_no_message_along(
    port: int, verbs: Verbs, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    others = [Wire([port], random.Random(i)) for i in range(20)]
    poll = {"QueueUrl": Q, "WaitTimeSeconds": 20}
    polls = [asyncio.create_task(one.call("ReceiveMessage", poll, within_s=30)) for one in others]
    await eventually(lambda: verbs.queues.waiting == 20)
    for one in others:
        one.close()
    await asyncio.gather(*polls, return_exceptions=True)
    await wire.call("SendMessage", sent())
    verbs.queues.look_everywhere()
    names = {"QueueUrl": Q, "WaitTimeSeconds": 2, "AttributeNames": ["ApproximateReceiveCount"]}
    (message,) = (await wire.call("ReceiveMessage", names, within_s=10))["Messages"]
    assert message["Attributes"] == {"ApproximateReceiveCount": "1"}
    await eventually(lambda: verbs.queues.waiting == 0)
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []


async def test_who_hangs_up_in_mid_answer_stops_nobody(port: int, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):
        await wire.call("SendMessage", sent(MessageBody="x" * MIB), within_s=10)
    body = json.dumps({"QueueUrl": Q, "MaxNumberOfMessages": 10}).encode()
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, head % len(body) + body)
        assert await loop.sock_recv(client, 100)
    assert (await wire.call("SendMessage", sent()))["MessageId"]
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []


async def test_a_signature_of_yesterday_is_none(verbs: Verbs) -> None:
    body = b'{"QueueName":"q"}'

    async def ask(clock: SystemClock) -> bytes:
        async with running_door(verbs, keys={"ID": "SECRET"}, clock=clock) as port:
            url = f"http://localhost:{port}/"
            headers = {"X-Amz-Target": "AmazonSQS.CreateQueue", "Content-Type": "application/x-amz-json-1.0"}
            request = AWSRequest("POST", url, headers=headers, data=body)
            SigV4Auth(Credentials("ID", "SECRET"), "sqs", "us-east-1").add_auth(request)
            lines = [f"{name}: {value}" for name, value in request.headers.items()]
            more = [f"Host: localhost:{port}", f"Content-Length: {len(body)}", "Connection: close"]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write("\r\n".join(["POST / HTTP/1.1", *lines, *more, "", ""]).encode() + body)
            async with asyncio.timeout(10):
                answer = await reader.read()
            writer.close()
            return answer

    assert (await ask(SystemClock())).split()[1] == b"200"
    refused = await ask(Ahead())
    assert refused.split()[1] == b"400"
    assert b"RequestExpired" in refused and b"Signature expired" in refused
