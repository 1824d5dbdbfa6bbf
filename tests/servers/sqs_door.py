"""A real SQS door of ours, in a process of its own, over a Redis of the caller's.

`python -m tests.servers.sqs_door PORT REDIS_URL ID:SECRET` runs it.
"""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import requests

from fleet.broker.sqs.main import run
from fleet.config.settings import RedisSettings, Settings, SqsSettings
from tests.servers.local import ServerProcess, _accepts, _running, _wait_for
from tests.servers.ports import free_port

REGION = "us-east-1"


class Refused(Exception):
    """The door answered with an error."""


@dataclass
class SqsDoor:
    server: ServerProcess
    port: int
    redis_url: str
    url: str = field(init=False)

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{self.port}"

    def make_queue(self, *, fifo: bool, name: str = "", **attributes: str) -> str:
        """Returns its URL."""
        name = name or f"q-{secrets.token_hex(6)}" + (".fifo" if fifo else "")
        if fifo:
            attributes["FifoQueue"] = "true"
        return str(self.ask("CreateQueue", QueueName=name, Attributes=attributes)["QueueUrl"])

    def counts(self, url: str) -> tuple[int, int, int]:
        """Visible, not visible and delayed."""
        every = ("", "NotVisible", "Delayed")
        names = [f"ApproximateNumberOfMessages{one}" for one in every]
        found = self.ask("GetQueueAttributes", QueueUrl=url, AttributeNames=names)["Attributes"]
        visible, not_visible, delayed = (int(found[name]) for name in names)
        return visible, not_visible, delayed

    def ask(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Without a client of AWS's: nobody signs here."""
        headers = {"X-Amz-Target": f"AmazonSQS.{operation}", "Content-Type": "application/x-amz-json-1.0"}
        answer = requests.post(self.url, data=json.dumps(parameters), headers=headers, timeout=30)
        if not answer.ok:
            raise Refused(answer.text)
        told: dict[str, Any] = answer.json() if answer.content else {}
        return told


@contextmanager
def running_sqs_door(redis_url: str, *, port: int | None = None, keys: str = "") -> Iterator[SqsDoor]:
    """A door of its own. `port`: to come back where an earlier one was. `keys`: who may come in, `ID:SECRET`."""
    with tempfile.TemporaryDirectory(prefix="fleet-door-", ignore_cleanup_errors=True) as directory:
        chosen = port or free_port()
        command = [sys.executable, "-m", "tests.servers.sqs_door", str(chosen), redis_url, keys]
        with _running(command, Path(directory, "door.log")) as server:
            _wait_for(server, lambda: _accepts(chosen))
            yield SqsDoor(server, chosen, redis_url)


if __name__ == "__main__":
    port, redis_url, keys = sys.argv[1:]
    door = SqsSettings(port=int(port), access_keys=keys)
    sys.exit(run(replace(Settings(), redis=RedisSettings(url=redis_url), sqs=door)))
