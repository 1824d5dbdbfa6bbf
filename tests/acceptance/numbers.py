"""What the seeds' numbers are measured with: a fleet of several queues and pools, endpoints, looks at a source."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fleet.operate.journal import End, Start, read
from fleet.sources.base import Outgoing
from fleet.sources.open import open_publisher
from fleet.state.keys import PoolKeys
from tests.member import Member
from tests.servers.local import running_redis
from tests.stage import Stage
from tests.waiting import until


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the endpoint's journal has it."""

    id: str
    group: str
    began_ms: float
    ended_ms: float


@dataclass(frozen=True, slots=True)
class AtSource:
    """One message in the queue's own file."""

    visible_at_ms: int
    taken: int
    """How often it was given to anybody."""
    is_leased: bool
    """Given out, and not nacked since."""


@dataclass(slots=True)
class Sink:
    """A sample endpoint: a process of its own, with a journal."""

    url: str
    journal: Path
    _read_to: int = 0
    _answered: list[str] = field(default_factory=list)

    def requests(self, prefix: str = "") -> list[Request]:
        """Those that were answered, in the order of their beginning."""
        begun: dict[tuple[str, int | None], float] = {}
        done: list[Request] = []
        for record in read(self.journal):
            if isinstance(record, Start):
                begun[record.id, record.epoch] = record.t
            elif isinstance(record, End) and record.id.startswith(prefix):
                began_ms = begun.get((record.id, record.epoch), record.t)
                done.append(Request(record.id, record.group or "", began_ms, record.t))
        return sorted(done, key=lambda request: request.began_ms)

    def answered(self, prefix: str) -> int:
        """Reads on from where it was: it is asked again and again, beside what is measured."""
        with self.journal.open("rb") as file:
            file.seek(self._read_to)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read_to += len(whole) + len(newline)
        records = map(json.loads, whole.splitlines())
        self._answered += [record["id"] for record in records if record["kind"] == "end"]
        return sum(message_id.startswith(prefix) for message_id in self._answered)


@dataclass
class House(Stage):
    """A stage whose queues and pools a test names itself."""

    pools: dict[str, dict[str, Any]] = field(default_factory=dict)
    queues: tuple[str, ...] = ("q",)

    def uri(self, queue: str = "q") -> str:
        return f"sqlite:///{self.file_of(queue)}?queue={queue}"

    def file_of(self, queue: str = "q") -> Path:
        return self.directory / f"{queue}.db"

    def write(self, **changes: dict[str, Any]) -> None:
        """The configuration, with these changes to its pools; whole and at once."""
        for code, options in changes.items():
            self.pools[code] = {**self.pools.get(code, {}), **options}
        document = {
            "queues": [
                {"queueName": queue, "queueUri": self.uri(queue), "visibilityTimeout": 60} for queue in self.queues
            ],
            "processingPools": [{"code": code, **options} for code, options in self.pools.items()],
        }
        draft = self.directory / "router.draft"
        draft.write_text(json.dumps(document))
        draft.replace(self.directory / "router.json")

    def settle_in(self) -> None:
        """Configure, and wait until every pool has its settings."""
        self.write()
        syncer = self.start("syncer", "--config", str(self.directory / "router.json"))
        with self.client() as client:
            keys = [PoolKeys(code).settings for code in self.pools]
            until(lambda: client.exists(*keys) == len(keys), 20, syncer.text)

    def sink(self, *, latency_ms: int) -> Sink:
        journal = self.directory / f"endpoint-{len(self.members)}.ndjson"
        options = ["--port", "0", "--latency-ms", str(latency_ms), "--journal", str(journal)]
        endpoint = self.start("endpoint", *options)
        until(lambda: "http://" in endpoint.text(), 20, endpoint.text)
        return Sink(next(word for word in endpoint.text().split() if word.startswith("http://")), journal)

    def crew(self, *, workers: int = 1, **environment: str) -> list[Member]:
        self.start("coordinator")
        return [self.start("worker", **environment) for _ in range(workers)]

    def publish(self, bodies: Iterable[dict[str, Any]], queue: str = "q") -> None:
        """In order, in one transaction each thousand."""
        asyncio.run(_publish(self.uri(queue), list(bodies)))

    def at_source(self, queue: str = "q") -> dict[str, AtSource]:
        """What its own file says of each message that is left, opened to read only."""
        with closing(sqlite3.connect(f"file:{self.file_of(queue)}?mode=ro", uri=True)) as file:
            rows = file.execute(
                "SELECT b.body, m.visible_at_ms, m.turn FROM messages m JOIN bodies b ON b.seq = m.seq ORDER BY m.seq"
            ).fetchall()
        return {json.loads(body)["id"]: AtSource(at, (turn + 1) // 2, turn % 2 == 1) for body, at, turn in rows}


async def _publish(uri: str, bodies: list[dict[str, Any]]) -> None:
    publisher = open_publisher(uri)
    await publisher.open()
    for first in range(0, len(bodies), 1000):
        part = bodies[first : first + 1000]
        refused = await publisher.publish(
            [Outgoing(body["id"], json.dumps(body).encode(), body.get("messageGroupId")) for body in part]
        )
        assert not any(refused), refused
    await publisher.close()


@contextmanager
def a_house(directory: Path, **options: Any) -> Iterator[House]:
    with ExitStack() as stack:
        house = House(directory, stack.enter_context(running_redis()), **options)
        stack.callback(house.stop)
        yield house


def message(message_id: str, group: str, pool: str, target: str, **more: Any) -> dict[str, Any]:
    return {"id": message_id, "messageGroupId": group, "poolCode": pool, "mediationTarget": target, **more}


def spread(prefix: str, count: int, groups: int, pool: str, target: str) -> list[dict[str, Any]]:
    """`count` messages over `groups` groups, in turn; the ids of each group rise."""
    return [message(f"{prefix}-{i:05d}", f"{prefix}-g{i % groups}", pool, target) for i in range(count)]


def peak(requests: Sequence[Request]) -> int:
    """The most that were in progress at one moment."""
    steps = sorted([(r.began_ms, 1) for r in requests] + [(r.ended_ms, -1) for r in requests])
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def active_at(requests: Sequence[Request], moment_ms: float) -> int:
    """How many were in progress just before a moment."""
    return sum(r.began_ms < moment_ms < r.ended_ms for r in requests)


Answer = tuple[int, dict[str, str], dict[str, Any]]
ACKED: Answer = (200, {}, {"ack": True})
NEVER: Answer = (0, {}, {})
"""No answer until the endpoint is let go."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class ToldEndpoint:
    """Answers the requests for a message as told, in turn, and acks what it was told nothing of."""

    def __init__(self) -> None:
        self.tell: dict[str, list[Answer]] = {}
        self.otherwise = ACKED
        self.seen: list[tuple[str, float]] = []
        """The message of each request, and when it came in (ms)."""
        self.requests: list[Sent] = []
        self.answered_ms: dict[str, float] = {}
        self.go = threading.Event()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(), bind_and_activate=False)
        self._server.daemon_threads = True
        self._server.request_queue_size = 128
        self._server.server_bind()
        self._server.server_activate()
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def ids(self) -> list[str]:
        """Of all requests, in the order in which they came in."""
        with self._lock:
            return [message_id for message_id, _ in self.seen]

    def close(self) -> None:
        self.go.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, message_id: str) -> Answer:
        with self._lock:
            self.seen.append((message_id, time.time() * 1000))
            told = self.tell.get(message_id)
            answer = told.pop(0) if told else self.otherwise
        if answer is NEVER:
            self.go.wait()
            return 400, {}, {"message": "let go"}
        return answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.requests.append(Sent(self.command, self.path, dict(self.headers), data))
                body = json.loads(data)
                status, headers, reply = endpoint._answer(body["messageId"])
                data = json.dumps(reply).encode()
                try:
                    self.send_response(status)
                    for name, value in {"Content-Length": str(len(data)), **headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(data)
                except ConnectionError:
                    self.close_connection = True  # the worker left at its deadline
                with endpoint._lock:
                    endpoint.answered_ms[body["messageId"]] = time.time() * 1000

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Nothing: what was asked is in `seen`."""

        return Handler


@contextmanager
def a_told_endpoint() -> Iterator[ToldEndpoint]:
    endpoint = ToldEndpoint()
    try:
        yield endpoint
    finally:
        endpoint.close()


def best_of(times: int, measure: Callable[[], float], good: Callable[[float], bool]) -> list[float]:
    """Measure until one is good, `times` at most: on a shared machine one bad figure says little."""
    figures: list[float] = []
    while len(figures) < times and not (figures and good(figures[-1])):
        figures.append(measure())
    return figures
