"""Where the messages of a whole path come from: each kind of queue, with its server where it has one."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmark.house.house import QUEUE, House
from benchmark.machine import child
from benchmark.machine.servers import await_ready
from fleet.sources.base import Surroundings
from tests.servers.activemq import running_activemq
from tests.servers.nats import running_nats
from tests.servers.ports import free_port


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    uri: str
    around: Surroundings = field(default_factory=Surroundings)
    environment: Mapping[str, str] = field(default_factory=dict)
    """What Fleet's processes need to reach it."""
    pids: Mapping[str, int] = field(default_factory=dict)
    """Its server's, whose CPU counts too."""


@contextmanager
def embedded(home: House) -> Iterator[Origin]:
    yield Origin(uri=f"sqlite:///{home.folder / 'queue.db'}?queue={QUEUE}")


@contextmanager
def own(home: House) -> Iterator[Origin]:
    yield Origin(uri=f"fleet://{QUEUE}", around=Surroundings(redis_url=home.server.url))


@contextmanager
def sqs(home: House) -> Iterator[Origin]:
    """An SQS that answers from memory; boto3 alone drains the same one beside it (`bare_sqs.py`)."""
    with sqs_responder(home.folder) as (url, pid):
        yield Origin(uri=url, environment=CREDENTIALS, pids={"responder": pid})


CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def sqs_responder(folder: Path) -> Iterator[tuple[str, int]]:
    """The URL of its queue, and its process."""
    port = free_port()
    # We publish to it ourselves, by boto3's own chain of credentials.
    before = {name: os.environ.get(name) for name in CREDENTIALS}
    os.environ.update(CREDENTIALS)
    try:
        command = [sys.executable, "-P", "-m", "tests.servers.fast_sqs", str(port)]
        with child.running(command, log=folder / "responder.log") as process:
            await_ready(process, lambda: _accepts(port), "the SQS responder", folder / "responder.log")
            yield f"http://127.0.0.1:{port}/000000000000/{QUEUE}", process.pid
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def nats(home: House) -> Iterator[Origin]:
    folder = home.folder / "nats"
    folder.mkdir()
    with running_nats(folder) as server:
        server.add_stream("BENCH")
        yield Origin(uri=server.uri("BENCH"), pids={"nats": server.server.pid})


@contextmanager
def activemq(home: House) -> Iterator[Origin]:
    with running_activemq(home.folder / "activemq") as server:
        yield Origin(uri=f"{server.uri(QUEUE)}?prefetch=30000", pids={"activemq": server.process.pid})
