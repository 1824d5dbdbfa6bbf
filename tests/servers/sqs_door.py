"""The SQS door on a real Redis: as a process, and in a thread with a clock that tests move."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import boto3
import botocore.session
import requests
from botocore.config import Config

from fleet.broker.sqs.door import Door
from fleet.broker.sqs.http import HttpServer
from fleet.broker.sqs.verbs import Verbs
from fleet.listening import address_of, listen
from fleet.state.connect import connected
from tests.clocks import HandClock
from tests.servers.local import ServerProcess, _accepts, _running, _wait_for
from tests.servers.ports import free_port
from tests.unit.broker.sqs.wire import query_model

REGION = "us-east-1"
TIMEOUT_S = 30.0
Protocol = Literal["json", "query"]
T = TypeVar("T")

_RUN = "from fleet.broker.sqs.main import run; from fleet.config.settings import load; raise SystemExit(run(load()))"


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
def running_sqs_door(
    redis_url: str, *, port: int | None = None, keys: str = "", **environment: str
) -> Iterator[SqsDoor]:
    """A process of its own. `port`: to come back where an earlier one was. `keys`: who may come in, `ID:SECRET`."""
    with tempfile.TemporaryDirectory(prefix="fleet-sqs-", ignore_cleanup_errors=True) as directory:
        chosen = port or free_port()
        given = {"FLEET_REDIS_URL": redis_url, "FLEET_SQS_PORT": str(chosen), **environment}
        if keys:
            given["FLEET_SQS_ACCESS_KEYS"] = keys
        with _running([sys.executable, "-c", _RUN], Path(directory, "sqs.log"), given) as server:
            _wait_for(server, lambda: _accepts(chosen))
            yield SqsDoor(server, chosen, redis_url)


# In a thread, with a clock by hand -------------------------------------------------------------------


class ClockedDoor:
    """What its queues take for the time stands still until a test moves it; upkeep is done when a test says so."""

    def __init__(self, redis_url: str) -> None:
        self.clock = HandClock()
        self._redis_url = redis_url
        self._listening = listen("127.0.0.1", 0)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._verbs: Verbs | None = None
        self._server: HttpServer | None = None
        self._thread = threading.Thread(target=self._run, name="a door", daemon=True)
        self.url = address_of(self._listening)

    def pass_s(self, seconds: float) -> None:
        self.clock.now_ms += round(seconds * 1000)

    def do(self, job: Callable[[Verbs], Awaitable[T]]) -> T:
        """Within the door."""

        async def done() -> T:
            assert self._verbs is not None
            return await job(self._verbs)

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(TIMEOUT_S)

    def each_second(self) -> None:
        self.do(lambda verbs: verbs.upkeep.each_second())

    def tidy(self) -> None:
        """What grows old is looked at within a minute."""
        self.each_second()
        self.pass_s(60)
        self.each_second()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()
            self._ready.set()

    async def _serve(self) -> None:
        async with connected(self._redis_url) as client:
            verbs = Verbs(client, region=REGION, now_ms=lambda: str(self.clock.now_ms))
            server = HttpServer(Door(verbs.table, keys={}, clock=self.clock))
            self._verbs, self._server = verbs, server
            self._loop.call_soon(self._ready.set)
            await server.serve(self._listening)
            await verbs.aclose()

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(TIMEOUT_S)

    def stop(self) -> None:
        def end() -> None:
            assert self._server is not None
            assert self._verbs is not None
            self._server.stop()
            self._verbs.queues.end_waits()

        self._loop.call_soon_threadsafe(end)
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()


@contextmanager
def clocked_door(redis_url: str) -> Iterator[ClockedDoor]:
    door = ClockedDoor(redis_url)
    door.start()
    try:
        yield door
    finally:
        door.stop()


# Clients ---------------------------------------------------------------------------------------------


def client_of(url: str, protocol: Protocol = "json", *, key: str = "nobody", secret: str = "none") -> Any:
    """boto3 as it comes, or as it was when SQS spoke the Query protocol. It tries nothing twice."""
    found = boto3.Session(
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        region_name=REGION,
        botocore_session=_session(protocol),
    )
    config = Config(retries={"total_max_attempts": 1}, read_timeout=TIMEOUT_S, proxies={}, max_pool_connections=20)
    return found.client("sqs", endpoint_url=url, config=config)


@cache
def _old_models() -> tempfile.TemporaryDirectory[str]:
    """A folder where the SDK looks for models before its own. It goes when we do."""
    folder = tempfile.TemporaryDirectory(prefix="fleet-sqs-model-", ignore_cleanup_errors=True)
    place = Path(folder.name, "sqs", "2012-11-05")
    place.mkdir(parents=True)
    Path(place, "service-2.json").write_text(json.dumps(query_model()._service_description))
    return folder


@cache
def _session(protocol: Protocol) -> botocore.session.Session:
    found = botocore.session.Session()
    if protocol == "query":
        found.get_component("data_loader").search_paths.insert(0, _old_models().name)
    return found


def hang_up(url: str, request: bytes) -> None:
    """Send this, and leave without waiting for an answer."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as line:
        line.sendall(request)
