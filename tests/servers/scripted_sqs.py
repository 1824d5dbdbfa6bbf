"""An SQS that answers what a test says: for what moto cannot do, such as failing entries of a batch."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = dict[str, Any] | tuple[int, dict[str, Any] | bytes]
Answering = Callable[[dict[str, Any]], Answer]


def all_done(asked: dict[str, Any]) -> Answer:
    return {"Successful": [{"Id": entry["Id"]} for entry in asked["Entries"]]}


def failing(faults: dict[str, tuple[str, str, bool]]) -> Answering:
    """The entries of a batch with these receipt handles or bodies fail: code, message, whether the sender is to
    blame."""

    def answer(asked: dict[str, Any]) -> Answer:
        done, failed = [], []
        for entry in asked["Entries"]:
            fault = faults.get(entry.get("ReceiptHandle") or entry.get("MessageBody"))
            if fault is None:
                done.append({"Id": entry["Id"]})
            else:
                code, text, is_senders = fault
                failed.append({"Id": entry["Id"], "Code": code, "Message": text, "SenderFault": is_senders})
        return {"Successful": done, "Failed": failed}

    return answer


def refusing(code: str, status: int = 400, text: str = "so it is") -> Answering:
    return lambda _: (status, {"__type": f"com.amazonaws.sqs#{code}", "message": text})


def message(number: int, *, count: int = 1, group: str = "", receipt: str = "") -> dict[str, Any]:
    attributes = {"ApproximateReceiveCount": str(count), **({"MessageGroupId": group} if group else {})}
    return {
        "MessageId": f"m{number}",
        "ReceiptHandle": receipt or f"r{number}",
        "Body": f"body {number}",
        "Attributes": attributes,
    }


@dataclass
class ScriptedSqs:
    url: str
    answers: dict[str, Answering]
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def on(self, operation: str, *answers: Answering) -> None:
        """One answer for each call; the last one stays."""
        left = list(answers)

        def next_answer(asked: dict[str, Any]) -> Answer:
            with self.changed:
                answer = left.pop(0) if len(left) > 1 else left[0]
            return answer(asked)

        self.answers[operation] = next_answer

    def asked(self, operation: str) -> list[dict[str, Any]]:
        with self.changed:
            return [parameters for name, parameters in self.calls if name == operation]

    def wait_for(self, operation: str, times: int) -> list[dict[str, Any]]:
        """Wait until it was called that often; blocks, for ten seconds at most."""
        with self.changed:
            assert self.changed.wait_for(lambda: sum(name == operation for name, _ in self.calls) >= times, 10)
        return self.asked(operation)


def fixed(answer: Answer) -> Answering:
    return lambda _: answer


@contextmanager
def scripted_sqs(*, fifo: bool = False) -> Iterator[ScriptedSqs]:
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            operation = self.headers["X-Amz-Target"].partition(".")[2]
            with sqs.changed:
                sqs.calls.append((operation, asked))
                sqs.changed.notify_all()
            answer = sqs.answers[operation](asked)
            status, told = answer if isinstance(answer, tuple) else (200, answer)
            body = told if isinstance(told, bytes) else json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its name in the library)
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: Any) -> None:
            """A client that went away in the middle is part of many tests."""

    server = Server(("127.0.0.1", 0), Handler)
    attributes = {
        "FifoQueue": str(fifo).lower(),
        "MaximumMessageSize": str(1024 * 1024),
        "ApproximateNumberOfMessages": "7",
        "ApproximateNumberOfMessagesNotVisible": "2",
        "ApproximateNumberOfMessagesDelayed": "1",
    }

    def nothing(asked: dict[str, Any]) -> Answer:
        over.wait(asked["WaitTimeSeconds"])
        return {}

    sqs = ScriptedSqs(
        url=f"http://127.0.0.1:{server.server_port}/123456789012/q{'.fifo' if fifo else ''}",
        answers={
            "GetQueueAttributes": fixed({"Attributes": attributes}),
            "ReceiveMessage": nothing,
            "DeleteMessageBatch": all_done,
            "ChangeMessageVisibilityBatch": all_done,
            "SendMessageBatch": all_done,
        },
    )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield sqs
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()
