"""Connections that send, receive and delete for some seconds, each as fast as it is answered.

`python -m benchmark.sqs.load URL CONNECTIONS SECONDS BATCH KIND NAME=PID …`: batches of 1 or 10, a queue that is
`standard` or `fifo`, and whose CPU time is told. The last line holds the figures; the queue is emptied before it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import uvloop

from benchmark.machine.timing import tree_s
from benchmark.sqs.wire import Client, Line, decode

BODY = "x" * 300
_NAME = 10
_WARM_UP_S = 1.0
_EMPTY_LOOKS = 5
_EMPTY_S = 10.0


@dataclass
class Tally:
    requests: int = 0
    sent: int = 0
    again: int = 0
    """Messages that were shown a second time."""
    seen: set[str] = field(default_factory=set)
    is_over: bool = False
    failure: str = ""
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def note(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            name = message["Body"][:_NAME]
            self.again += name in self.seen
            self.seen.add(name)


class Asker:
    """One connection: it sends, receives, deletes what it was given, and begins again."""

    def __init__(self, client: Client, queue: str, batch: int, tally: Tally, *, fifo: bool) -> None:
        self._client, self._queue, self._batch, self._tally, self._fifo = client, queue, batch, tally, fifo
        self._line = Line(client.host, client.port, self._on_answer)
        self._receive = client.request("ReceiveMessage", {"QueueUrl": queue, "MaxNumberOfMessages": batch})
        self._next: Callable[[bytes], None] = self._after_send
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        entries = [self._message(f"{next(self._tally.numbers):0{_NAME}d}") for _ in range(self._batch)]
        if self._batch == 1:
            request = self._client.request("SendMessage", {"QueueUrl": self._queue, **entries[0]})
        else:
            numbered = [{"Id": str(place), **entry} for place, entry in enumerate(entries)]
            request = self._client.request("SendMessageBatch", {"QueueUrl": self._queue, "Entries": numbered})
        self._next = self._after_send
        self._line.ask(request)

    def _message(self, name: str) -> dict[str, str]:
        message = {"MessageBody": name + BODY}
        return message | {"MessageGroupId": name[-3:], "MessageDeduplicationId": name} if self._fifo else message

    def _on_answer(self, status: int, body: bytes) -> None:
        self._tally.requests += 1
        if status != 200 or b'"Failed":[{' in body or b'"Failed": [{' in body:
            self._tally.failure = f"{status}: {body[:200].decode(errors='replace')}"
            self._end()
        else:
            self._next(body)

    def _after_send(self, _body: bytes) -> None:
        self._tally.sent += self._batch
        self._next = self._after_receive
        self._line.ask(self._receive)

    def _after_receive(self, body: bytes) -> None:
        messages = decode(body).get("Messages", []) if body else []
        self._tally.note(messages)
        if messages:
            self._next = self._after_delete
            self._line.ask(_deletion(self._client, self._queue, messages, one=self._batch == 1))
        else:
            self._after_delete(b"")

    def _after_delete(self, _body: bytes) -> None:
        if self._tally.is_over or self._tally.failure:
            self._end()
        else:
            self.begin()

    def _end(self) -> None:
        self._line.close()
        if not self.done.done():
            self.done.set_result(None)


def _deletion(client: Client, queue: str, messages: list[dict[str, Any]], *, one: bool) -> bytes:
    if one:
        return client.request("DeleteMessage", {"QueueUrl": queue, "ReceiptHandle": messages[0]["ReceiptHandle"]})
    entries = [{"Id": str(place), "ReceiptHandle": m["ReceiptHandle"]} for place, m in enumerate(messages)]
    return client.request("DeleteMessageBatch", {"QueueUrl": queue, "Entries": entries})


async def run(
    url: str, connections: int, seconds: float, batch: int, servers: Mapping[str, int], *, fifo: bool
) -> dict[str, float | int]:
    client, tally = Client(url), Tally()
    attributes = {"FifoQueue": "true"} if fifo else {}
    name = f"bench-{batch}" + (".fifo" if fifo else "")
    queue = (await client.call("CreateQueue", QueueName=name, Attributes=attributes))["QueueUrl"]
    askers = [Asker(client, queue, batch, tally, fifo=fifo) for _ in range(connections)]
    for asker in askers:
        asker.begin()
    await asyncio.sleep(min(_WARM_UP_S, seconds))
    cpu_s = {name: tree_s(pid) for name, pid in servers.items()}
    began, requests, seen = time.perf_counter(), tally.requests, len(tally.seen)
    await asyncio.sleep(seconds)
    took_s = time.perf_counter() - began
    requests, seen = tally.requests - requests, len(tally.seen) - seen
    cpu_s = {name: tree_s(pid) - cpu_s[name] for name, pid in servers.items()}
    tally.is_over = True
    await asyncio.gather(*(asker.done for asker in askers))
    if tally.failure:
        raise SystemExit(tally.failure)
    await _empty(client, queue, tally)
    return {
        "requests_per_s": round(requests / took_s, 1),
        "messages_per_s": round(seen / took_s, 1),
        "lost": tally.sent - len(tally.seen),
        "again": tally.again,
        **{f"{name}_us": round(used_s * 1e6 / max(requests, 1), 2) for name, used_s in cpu_s.items()},
        **{f"{name}_share": round(used_s / took_s, 3) for name, used_s in cpu_s.items()},
    }


async def _empty(client: Client, queue: str, tally: Tally) -> None:
    looks, until_s = 0, time.monotonic() + _EMPTY_S
    while looks < _EMPTY_LOOKS and time.monotonic() < until_s:
        answer = await client.call("ReceiveMessage", QueueUrl=queue, MaxNumberOfMessages=10)
        if messages := answer.get("Messages", []):
            tally.note(messages)
            entries = [{"Id": str(place), "ReceiptHandle": m["ReceiptHandle"]} for place, m in enumerate(messages)]
            await client.call("DeleteMessageBatch", QueueUrl=queue, Entries=entries)
        looks = 0 if messages else looks + 1
    client.close()


if __name__ == "__main__":
    url, connections, seconds, batch, kind, *named = sys.argv[1:]
    pids = {name: int(pid) for name, _, pid in (one.partition("=") for one in named)}
    found = uvloop.run(run(url, int(connections), float(seconds), int(batch), pids, fifo=kind == "fifo"))
    sys.stdout.write(json.dumps(found) + "\n")
