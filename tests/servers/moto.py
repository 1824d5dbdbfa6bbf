"""A real moto server: AWS's SQS as far as moto knows it, on loopback.

How it differs from AWS, in the version that was read for this (5.2):
- a handle of an earlier delivery deletes a message and changes its visibility (AWS FIFO refuses it as expired);
- two receives at once are given messages of one FIFO group: it looks at what is out before, without a lock;
- messages of a FIFO group whose leases lapse together come back newest first;
- a long poll on a FIFO queue does not see that a group is freed while it waits, and spins for as long;
- dedup ids are forgotten with their message (AWS: five minutes after the send, whatever became of it);
- a FIFO queue takes a delay for a single message, and any characters in a group.
"""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.servers.local import ServerProcess, _accepts, _running, _wait_for
from tests.servers.ports import free_port

REGION = "eu-west-1"
ACCOUNT = "123456789012"  # moto's only one


@dataclass
class MotoServer:
    server: ServerProcess
    port: int
    url: str = field(init=False)

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{self.port}"

    def make_queue(self, *, fifo: bool, name: str = "", **attributes: str) -> str:
        """Returns its URL."""
        name = name or f"q-{secrets.token_hex(6)}" + (".fifo" if fifo else "")
        if fifo:
            attributes["FifoQueue"] = "true"
        return str(self.ask("CreateQueue", QueueName=name, Attributes=attributes)["QueueUrl"])

    def ask(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Unsigned and without boto3: moto looks only at the scope of the signature, for the region."""
        scope = f"AKIA/20260101/{REGION}/sqs/aws4_request"
        headers = {
            "X-Amz-Target": f"AmazonSQS.{operation}",
            "Content-Type": "application/x-amz-json-1.0",
            "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
        }
        answer = requests.post(self.url, data=json.dumps(parameters), headers=headers, timeout=10)
        answer.raise_for_status()
        told: dict[str, Any] = answer.json() if answer.content else {}
        return told


@contextmanager
def running_moto(*, port: int | None = None) -> Iterator[MotoServer]:
    """A moto server of its own. `port`: to come back where an earlier one was; its queues are gone then."""
    with tempfile.TemporaryDirectory(prefix="fleet-moto-", ignore_cleanup_errors=True) as directory:
        chosen = port or free_port()
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(chosen)]
        with _running(command, Path(directory, "moto.log")) as server:
            _wait_for(server, lambda: _accepts(chosen))
            yield MotoServer(server, chosen)


@contextmanager
def aws_settings() -> Iterator[None]:
    """Credentials through boto3's own chain, and nothing of this machine's own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_REGION", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", "/dev/null")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield
