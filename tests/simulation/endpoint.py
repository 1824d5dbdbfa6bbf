"""What messages are delivered to: an endpoint with moods, and the worker's HTTP client that calls it.

An endpoint writes down what it accepted, in order. One that fences refuses epochs below one that it has seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from fleet.delivery.reply import Reply
from tests.simulation.loop import Loop, Process
from tests.simulation.network import Network

Mood = Literal["well", "slow", "500", "no", "429", "reset", "hangs", "fences", "half"]
SLOW_FACTOR = 20.0
SLOWEST_S = 1.5 * SLOW_FACTOR * 1.0
"""How long the slowest request takes."""


@dataclass(slots=True)
class Accepted:
    at_s: float
    message_id: str
    epoch: int


@dataclass(slots=True)
class Nature:
    """How one message fares at its endpoint: it is refused this many times, or for good."""

    refusals: int = 0
    refused_with: str = "no"
    delay_s: int = 1
    is_rejected: bool = False


@dataclass
class Endpoint:
    """One origin."""

    origin: str
    fences: bool
    latency_s: float
    mood: Mood = "well"
    seen: dict[str, int] = field(default_factory=dict)
    natures: dict[str, Nature] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Transfer:
    """One request, from its worker's view."""

    http: SimulatedHttp
    done: Callable[[Reply], None]
    pool: str
    lane: str
    group: str
    message_id: str
    epoch: int
    attempt: int
    endpoint: Endpoint
    timeout_s: float
    posted_s: float
    stops: int = 0
    is_over: bool = False
    is_heard: bool = False
    """Its worker read that it was accepted."""
    is_written: bool = False
    written_s: float = 0.0

    def abort(self) -> None:
        self.is_over = True
        self.http.endpoints.on_over(self)


class Endpoints:
    """All endpoints, and what every process saw there."""

    def __init__(self, loop: Loop, network: Network, chance: random.Random) -> None:
        self.loop = loop
        self.network = network
        self.chance = chance
        self.by_origin: dict[str, Endpoint] = {}
        self.accepted: dict[str, list[Accepted]] = {}
        """By group, in the order in which they were accepted."""
        self.on_written: Callable[[Transfer], None] = lambda _: None
        self.on_accepted: Callable[[Transfer], None] = lambda _: None
        self.on_over: Callable[[Transfer], None] = lambda _: None
        self.rejected: set[str] = set()

    def arrive(self, transfer: Transfer) -> None:
        """The request has arrived: decide what becomes of it."""
        endpoint, chance = transfer.endpoint, self.chance
        mood = endpoint.mood
        if mood == "reset" or (mood == "half" and chance.random() < 0.5):
            self._reply(transfer, 0.0, Reply(0, b"", 0.0, error="RESET", detail="simulated"))
            return
        if mood == "hangs":
            return  # its worker gives up by itself
        think_s = endpoint.latency_s * (0.5 + chance.random()) * (SLOW_FACTOR if mood == "slow" else 1.0)
        self.loop.later(think_s, self._act, transfer, mood)

    def _act(self, transfer: Transfer, mood: Mood) -> None:
        endpoint = transfer.endpoint
        key = transfer.lane  # epochs of two pools are two series
        if endpoint.fences and transfer.group:
            seen = endpoint.seen.get(key, 0)
            if transfer.epoch < seen or mood == "fences":
                self._reply(transfer, 0.0, Reply(412, b"", 0.0, fenced=True))
                return
            endpoint.seen[key] = transfer.epoch
        elif mood == "fences":
            self._reply(transfer, 0.0, Reply(412, b"", 0.0, fenced=True))
            return
        nature = endpoint.natures.get(transfer.message_id)
        if nature is not None and nature.is_rejected:
            self.rejected.add(transfer.message_id)
            self._reply(transfer, 0.0, Reply(404, b"", 0.0))
            return
        if nature is not None and nature.refusals > 0:
            nature.refusals -= 1
            self._reply(transfer, 0.0, _refusal(nature.refused_with, nature.delay_s))
            return
        if mood in ("500", "no", "429"):
            self._reply(transfer, 0.0, _refusal(mood, 1 + int(self.chance.random() * 10)))
            return
        self.accepted.setdefault(transfer.group or transfer.lane, []).append(
            Accepted(self.loop.now_s, transfer.message_id, transfer.epoch)
        )
        self.on_accepted(transfer)
        self._reply(transfer, 0.0, Reply(200, b"", 0.0))

    def _reply(self, transfer: Transfer, after_s: float, reply: Reply) -> None:
        self.loop.later(after_s + self.network.delay_s(), transfer.http.answered, transfer, reply)


def _refusal(how: str, delay_s: int) -> Reply:
    match how:
        case "no":
            return Reply(200, b'{"ack":false,"delaySeconds":%d}' % delay_s, 0.0)
        case "429":
            return Reply(429, b"", 0.0, retry_after=str(delay_s))
        case _:
            return Reply(500, b"", 0.0)


class SimulatedHttp:
    """In place of `fleet.delivery.client.HttpClient`, one per worker."""

    def __init__(self, endpoints: Endpoints) -> None:
        self.endpoints = endpoints
        self.before_io: Callable[[], None] = _nothing
        self._loop = endpoints.loop
        process = endpoints.loop.process
        assert process is not None
        self.process: Process = process

    def post(
        self, url: str, headers: list[str], body: bytes, *, timeout_ms: int, done: Callable[[Reply], None]
    ) -> Transfer:
        told = dict(line.split(": ", 1) for line in headers)
        parts = urlsplit(url)
        message_id = msgspec.json.decode(body)["messageId"]
        group = told.get("Fleet-Group", "")
        transfer = Transfer(
            http=self,
            done=done,
            pool=told["Fleet-Pool"],
            lane=f"{told['Fleet-Pool']} {group or message_id}",
            group=group,
            message_id=message_id,
            epoch=int(told["Fleet-Epoch"]),
            attempt=int(told["Fleet-Attempt"]),
            endpoint=self.endpoints.by_origin[f"{parts.scheme}://{parts.netloc}"],
            timeout_s=timeout_ms / 1000,
            posted_s=self._loop.now_s,
        )
        self._loop.call_soon(self._write, transfer)
        return transfer

    def _write(self, transfer: Transfer) -> None:
        """In a later turn of the loop, as libcurl does."""
        self.before_io()
        if transfer.is_over:
            return
        transfer.is_written = True
        transfer.written_s = self._loop.now_s
        transfer.stops = self.process.stops
        self.endpoints.on_written(transfer)
        # On the wire it is out of the worker's hands.
        self._loop.later(self.endpoints.network.delay_s(), self.endpoints.arrive, transfer)
        self._loop.call_later(transfer.timeout_s, self._give_up, transfer)

    def _give_up(self, transfer: Transfer) -> None:
        self._end(transfer, Reply(0, b"", 0.0, error="TIMEOUT", detail="simulated"))

    def answered(self, transfer: Transfer, reply: Reply) -> None:
        if not self.process.is_dead:
            self._loop.call_soon(self._end, transfer, reply, context=self.process.context)

    def _end(self, transfer: Transfer, reply: Reply) -> None:
        if transfer.is_over:
            return
        self.before_io()
        self._finish(transfer, reply)

    def _finish(self, transfer: Transfer, reply: Reply) -> None:
        """Does nothing if it was aborted just before."""
        if not transfer.is_over:
            transfer.is_over = True
            transfer.is_heard = reply.status == 200 and not reply.body
            self.endpoints.on_over(transfer)
            reply.seconds = self._loop.now_s - transfer.posted_s
            transfer.done(reply)

    def close(self) -> None:
        return


def _nothing() -> None:
    return
