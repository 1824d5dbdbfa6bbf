"""An SQS for measuring: one standard queue in memory, faster than any client. `python -m tests.servers.fast_sqs PORT`.

It holds what is sent and what is out, and deletes what it is asked to. It has no visibility timeouts and no long poll
beyond 100 ms: a run that loses nothing needs neither.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import Any, Protocol, cast

import msgspec
import uvloop

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode
WAIT_S = 0.1
LOOK_S = 0.05
"""How often a waiting receive looks."""


class Queue:
    def __init__(self) -> None:
        self.waiting: deque[tuple[int, dict[str, Any]]] = deque()
        self.out: dict[str, tuple[int, dict[str, Any]]] = {}
        self.sent = 0

    def answer(self, operation: str, asked: dict[str, Any]) -> dict[str, Any]:
        match operation:
            case "ReceiveMessage":
                return self._receive(asked.get("MaxNumberOfMessages", 1))
            case "DeleteMessageBatch":
                for entry in asked["Entries"]:
                    self.out.pop(entry["ReceiptHandle"], None)
            case "ChangeMessageVisibilityBatch":
                for entry in asked["Entries"]:
                    if entry["VisibilityTimeout"] == 0 and entry["ReceiptHandle"] in self.out:
                        self.waiting.append(self.out.pop(entry["ReceiptHandle"]))
            case "SendMessageBatch":
                for entry in asked["Entries"]:
                    self.sent += 1
                    self.waiting.append((self.sent, entry))
            case "GetQueueUrl":
                return {"QueueUrl": f"http://127.0.0.1/1/{asked['QueueName']}"}
            case _:
                return {
                    "Attributes": {
                        "FifoQueue": "false",
                        "ApproximateNumberOfMessages": str(len(self.waiting)),
                        "ApproximateNumberOfMessagesNotVisible": str(len(self.out)),
                        "ApproximateNumberOfMessagesDelayed": "0",
                    }
                }
        return {"Successful": [{"Id": entry["Id"], "MessageId": entry["Id"]} for entry in asked["Entries"]]}

    def _receive(self, most: int) -> dict[str, Any]:
        messages: list[dict[str, Any]] = []
        while self.waiting and len(messages) < most:
            number, entry = self.waiting.popleft()
            receipt = f"{number:0180d}"  # as long as AWS's
            self.out[receipt] = number, entry
            messages.append(
                {
                    "MessageId": f"{number:08d}-0000-4000-8000-000000000000",
                    "ReceiptHandle": receipt,
                    "MD5OfBody": "0" * 32,
                    "Body": entry["MessageBody"],
                    "Attributes": {"ApproximateReceiveCount": "1"},
                    **({"MessageAttributes": entry["MessageAttributes"]} if "MessageAttributes" in entry else {}),
                }
            )
        return {"Messages": messages} if messages else {}


class Answers(Protocol):
    def answer(self, operation: str, asked: dict[str, Any]) -> dict[str, Any]: ...


class Connection(asyncio.Protocol):
    def __init__(self, queue: Answers, *, waits_s: float = WAIT_S) -> None:
        """`waits_s`: no receive waits for longer, however long it asks for."""
        self._queue = queue
        self._waits_s = waits_s
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            head = self._read[:end].lower()
            length = int(_header(head, b"content-length:") or 0)
            if len(self._read) < end + 4 + length:
                return
            body, self._read = self._read[end + 4 : end + 4 + length], self._read[end + 4 + length :]
            # Lower case like the rest of the head; the operations differ in more than case.
            operation = _OPERATIONS[_header(head, b"x-amz-target:").rpartition(b".")[2]]
            asked = _decode(body)
            self._respond(operation, asked, min(self._waits_s, asked.get("WaitTimeSeconds", WAIT_S)))

    def _respond(self, operation: str, asked: dict[str, Any], left_s: float) -> None:
        answer = self._queue.answer(operation, asked)
        if answer or operation != "ReceiveMessage" or left_s <= 0:
            self._send(answer)
        elif not self._transport.is_closing():
            asyncio.get_running_loop().call_later(LOOK_S, self._respond, operation, asked, left_s - LOOK_S)

    def _send(self, answer: dict[str, Any]) -> None:
        body = _encode(answer)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: %d\r\n\r\n"
        self._transport.write(head % len(body) + body)


_OPERATIONS = {
    name.lower().encode(): name
    for name in (
        "ReceiveMessage",
        "DeleteMessageBatch",
        "ChangeMessageVisibilityBatch",
        "SendMessageBatch",
        "GetQueueUrl",
        "GetQueueAttributes",
    )
}


def _header(head: bytes, name: bytes) -> bytes:
    at = head.find(b"\r\n" + name)
    return head[at + 2 + len(name) : head.find(b"\r\n", at + 2) if b"\r\n" in head[at + 2 :] else None].strip()


async def serve(port: int, queue: Answers, *, waits_s: float = WAIT_S) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(queue, waits_s=waits_s), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Queue()))
