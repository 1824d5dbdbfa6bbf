"""An SQS queue that is strict, and outlives a kill. `python -m tests.servers.strict_sqs PORT FILE fifo|standard`.

What AWS promises for a FIFO queue and moto does not keep (moto.py): while any message of a group is out, the group
shows no other; what lapses together comes again oldest first; a handle that expired, or is of an earlier receive, does
nothing; a dedup id is remembered for five minutes, whatever became of its message. What is sent and deleted is in FILE
before it is answered: started again with the same FILE, it has what was not deleted, all of it visible. A standard
queue is one where each message is a group of its own, and dedup ids are not remembered.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers.fast_sqs import serve
from tests.servers.local import ServerProcess, _accepts, _running, _wait_for

LONG_POLL_S = 20.0
DEDUP_S = 300.0


@dataclass(slots=True)
class Standing:
    number: int
    group: str
    body: str
    attributes: dict[str, Any]
    visible_at: float = 0.0
    count: int = 0


@dataclass
class Strict:
    file: Path
    is_fifo: bool = True
    groups: dict[str, dict[int, Standing]] = field(default_factory=dict)
    """Messages of each group, oldest first; the group that was served last is the last."""
    seen: dict[str, float] = field(default_factory=dict)
    last: int = 0

    def __post_init__(self) -> None:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        for record in map(json.loads, lines):
            if record["what"] == "sent":
                self._append(record)
            else:
                self._remove(record["group"], record["number"])
        self._log = self.file.open("a")

    def answer(self, operation: str, asked: dict[str, Any]) -> dict[str, Any]:
        match operation:
            case "SendMessageBatch":
                return {"Successful": [self._send(entry) for entry in asked["Entries"]]}
            case "ReceiveMessage":
                return self._receive(asked["MaxNumberOfMessages"], asked["VisibilityTimeout"])
            case "DeleteMessageBatch" | "ChangeMessageVisibilityBatch":
                faults = [(entry, self._settle(entry)) for entry in asked["Entries"]]
                self._log.flush()
                return {
                    "Successful": [{"Id": entry["Id"]} for entry, fault in faults if not fault],
                    "Failed": [
                        {"Id": entry["Id"], "Code": "InvalidParameterValue", "Message": fault, "SenderFault": True}
                        for entry, fault in faults
                        if fault
                    ],
                }
            case _:
                now = time.monotonic()
                out = sum(one.visible_at > now for group in self.groups.values() for one in group.values())
                total = sum(map(len, self.groups.values()))
                return {
                    "Attributes": {
                        **({"FifoQueue": "true"} if self.is_fifo else {}),
                        "MaximumMessageSize": str(1024 * 1024),
                        "ApproximateNumberOfMessages": str(total - out),
                        "ApproximateNumberOfMessagesNotVisible": str(out),
                        "ApproximateNumberOfMessagesDelayed": "0",
                    }
                }

    def _send(self, entry: dict[str, Any]) -> dict[str, Any]:
        now, number = time.time(), self.last + 1
        dedup_id = entry["MessageDeduplicationId"] if self.is_fifo else f"{number}"
        if self.seen.get(dedup_id, 0) <= now:
            record = {"what": "sent", "number": number, "group": entry["MessageGroupId"] if self.is_fifo else dedup_id}
            record |= {"body": entry["MessageBody"], "attributes": entry.get("MessageAttributes", {})}
            record |= {"dedup": dedup_id, "until": now + DEDUP_S}
            self._log.write(json.dumps(record) + "\n")
            self._log.flush()
            self._append(record)
        return {"Id": entry["Id"], "MessageId": entry["Id"]}

    def _append(self, record: dict[str, Any]) -> None:
        self.last = record["number"]
        self.seen[record["dedup"]] = record["until"]
        one = Standing(self.last, record["group"], record["body"], record["attributes"])
        self.groups.setdefault(one.group, {})[one.number] = one

    def _remove(self, group: str, number: int) -> None:
        del self.groups[group][number]
        if not self.groups[group]:
            del self.groups[group]

    def _receive(self, most: int, visibility_s: int) -> dict[str, Any]:
        now = time.monotonic()
        shown: list[Standing] = []
        for name, group in list(self.groups.items()):
            if any(one.visible_at > now for one in group.values()):
                continue
            shown += list(group.values())[: most - len(shown)]
            self.groups[name] = self.groups.pop(name)
            if len(shown) == most:
                break
        for one in shown:
            one.count, one.visible_at = one.count + 1, now + visibility_s
        return {"Messages": [_message(one, self.is_fifo) for one in shown]} if shown else {}

    def _settle(self, entry: dict[str, Any]) -> str:
        """Why it cannot be done; '' if it is done."""
        number, count, group = entry["ReceiptHandle"].split(".", 2)
        one = self.groups.get(group, {}).get(int(number))
        visible_s = entry.get("VisibilityTimeout")
        if one is None:
            return "" if visible_s is None else "the message is not there"
        if one.count != int(count) or one.visible_at <= time.monotonic():
            return "The receipt handle has expired"
        if visible_s is None:
            self._log.write(json.dumps({"what": "deleted", "number": one.number, "group": group}) + "\n")
            self._remove(group, one.number)
        else:
            one.visible_at = time.monotonic() + visible_s
        return ""


def _message(one: Standing, is_fifo: bool) -> dict[str, Any]:
    return {
        "MessageId": f"{one.number:08d}",
        "ReceiptHandle": f"{one.number}.{one.count}.{one.group}",
        "MD5OfBody": "0" * 32,
        "Body": one.body,
        # A standard queue has no groups: those of its messages travel beside the body.
        "Attributes": {
            "ApproximateReceiveCount": str(one.count),
            **({"MessageGroupId": one.group} if is_fifo else {}),
        },
        "MessageAttributes": one.attributes,
    }


@contextmanager
def running_strict_sqs(directory: Path, *, port: int, fifo: bool) -> Iterator[ServerProcess]:
    """`port`: also to come back where an earlier one with this directory was."""
    kind = "fifo" if fifo else "standard"
    command = [sys.executable, "-m", "tests.servers.strict_sqs", str(port), str(directory / "queue.ndjson"), kind]
    with _running(command, directory / "sqs.log") as server:
        _wait_for(server, lambda: _accepts(port))
        yield server


def uri_of(port: int, *, fifo: bool) -> str:
    return f"http://127.0.0.1:{port}/000000000000/storm{'.fifo' if fifo else ''}"


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Strict(Path(sys.argv[2]), sys.argv[3] == "fifo"), waits_s=LONG_POLL_S))
