"""Asking a pull consumer for messages so that none is lost, no matter who gives up waiting, or when.

nats-py's `fetch` drops what comes after it gave up. Here what arrives goes into one buffer, no matter which poll asked
for it, and the next poll begins with that. A request says `no_wait` *and* `expires`: the server then waits for the
first message, sends what there is, and says when that was all. So a request is over when its poll is, and takes nothing
later.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from fleet.sources.nats.delivery import ACK_PREFIX, Marks, read_marks
from fleet.sources.nats.line import NatsLine, status_of

SILENCE_S = 1.2
"""How long the server may say nothing about a request: three of its heartbeats; without any, from when the request is
due to end."""
_HEARTBEAT_S = 0.4
_MOST_BYTES = 16 << 20
"""Per request: the server disconnects a client for which it has more than 64 MB waiting."""
_HEARTBEAT = "100"
LOST = "lost"
SILENT = "silent"


@dataclass(slots=True)
class Fetched:
    message: Msg
    marks: Marks
    arrived_s: float


@dataclass(eq=False, slots=True)
class PullRequest:
    """One request. Its messages come on its lane, and so does the status that ends it."""

    number: int
    left: int
    expires_s: float
    heard_s: float
    over: asyncio.Event = field(default_factory=asyncio.Event)
    status: str = ""
    words: str = ""
    is_waited_for: bool = True
    has_heartbeat: bool = False

    def end(self, status: str = "", words: str = "") -> None:
        if not self.over.is_set():
            self.status, self.words = status, words
            self.over.set()


@dataclass(eq=False, slots=True)
class _Lane:
    """A subscription, for one request at a time: a message does not say which request it answers."""

    inbox: str
    subscription: Subscription | None = None
    ask: PullRequest | None = None


class Puller:
    def __init__(self, *, line: NatsLine, stream: str, consumer: str) -> None:
        self._line = line
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._lanes: list[_Lane] = []
        self._lanes_of: Client | None = None
        self._next_ask = 0
        self.buffer: deque[Fetched] = deque()
        self.last: Fetched | None = None
        """The last message that came. Its consumer sequence only rises while the consumer is the same."""
        self.newest_seq = 0
        """The highest stream sequence that was shown to us for the first time."""
        self.went_back = False
        """Deliveries are numbered from the start again: it may be another consumer, of another stream."""

    async def fetch(self, want: int, until_s: float) -> PullRequest:
        """Ask, or go on waiting for what a cancelled poll asked for. Returns when that is over, or the time is
        up."""
        until_s = max(until_s, asyncio.get_running_loop().time())
        ask = self._unattended(until_s) or await self._ask(want, until_s)
        ask.is_waited_for = True
        try:
            await self._wait(ask, until_s)
        finally:
            ask.is_waited_for = False
        return ask

    async def _wait(self, ask: PullRequest, until_s: float) -> None:
        now = asyncio.get_running_loop().time
        while not ask.over.is_set():
            silent_s = (ask.heard_s if ask.has_heartbeat else ask.expires_s) + SILENCE_S
            if now() >= silent_s:
                # A request to a missing consumer gets no answer at all, not even "no responders".
                ask.end(SILENT)
                return
            if now() >= until_s < ask.expires_s:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(silent_s, until_s) if until_s < ask.expires_s else silent_s):
                    await ask.over.wait()

    def begin(self, newest_seq: int) -> None:
        """Start with nothing in hand, after what was shown so far."""
        self.buffer.clear()
        self.last, self.newest_seq = None, newest_seq

    def lose(self) -> bool:
        """The connection broke, and the server forgets its requests with it. What has arrived is still ours.

        Returns whether more may have been on its way.
        """
        asked = [lane.ask for lane in self._lanes if lane.ask is not None]
        unanswered = any(not ask.over.is_set() or ask.status == SILENT for ask in asked)
        for ask in asked:
            ask.end(LOST)
        return unanswered

    async def over(self) -> None:
        """Wait until no request is open any more: normally a second at most, as long as a poll waits.

        The server (2.9) may still hold a request of a client that has gone. A message that is nacked then goes to that
        request, and comes again only after the ack wait: behind newer ones.
        """
        for lane in self._lanes:
            if lane.ask is not None and not lane.ask.over.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(lane.ask.expires_s + SILENCE_S):
                        await lane.ask.over.wait()

    async def end(self) -> bool:
        """Nothing more may come: stop the requests, and let in what is already on its way. False if that fails."""
        is_all_in = True
        for lane in self._lanes:
            if lane.subscription is not None and lane.ask is not None and not lane.ask.over.is_set():
                try:
                    await lane.subscription.drain()  # type: ignore[no-untyped-call]
                except (nats.errors.Error, OSError):
                    is_all_in = False
                lane.ask.end(LOST)
        return is_all_in

    def _unattended(self, until_s: float) -> PullRequest | None:
        now_s = asyncio.get_running_loop().time()
        for lane in self._lanes:
            ask = lane.ask
            if ask is None or ask.over.is_set() or ask.is_waited_for:
                continue
            # A poll that looks only once must not wait for a request that waits.
            if ask.expires_s <= until_s or now_s < until_s:
                return ask
        return None

    async def _ask(self, want: int, until_s: float) -> PullRequest:
        lane = await self._lane()
        wait_s = until_s - asyncio.get_running_loop().time()
        self._next_ask += 1
        ask = lane.ask = PullRequest(number=self._next_ask, left=want, expires_s=until_s, heard_s=until_s - wait_s)
        # A message that is larger than that by itself must still come.
        most_bytes = max(_MOST_BYTES, 2 * self._line.max_payload_bytes)
        request = {"batch": want, "no_wait": True, "max_bytes": most_bytes}
        if wait_s > 0:
            request["expires"] = max(1_000_000, int(wait_s * 1e9))
        if wait_s >= 2 * _HEARTBEAT_S:
            request["idle_heartbeat"] = int(_HEARTBEAT_S * 1e9)
            ask.has_heartbeat = True
        try:
            await self._line.send(self._subject, json.dumps(request).encode(), reply=f"{lane.inbox}.{ask.number}")
        except Exception:
            ask.end(LOST)
            raise
        except BaseException:
            ask.is_waited_for = False
            raise
        return ask

    async def _lane(self) -> _Lane:
        client = await self._line.client()
        if self._lanes_of is not client:
            self._lanes, self._lanes_of = [], client
        for lane in self._lanes:
            if lane.ask is not None and lane.ask.over.is_set():
                return lane
        lane = _Lane(client.new_inbox())

        async def on_message(msg: Msg) -> None:
            self._take(lane, msg)

        lane.subscription = await self._line.subscribe(f"{lane.inbox}.*", on_message)
        self._lanes.append(lane)
        return lane

    def _take(self, lane: _Lane, msg: Msg) -> None:
        ask = lane.ask
        if ask is not None:
            ask.heard_s = asyncio.get_running_loop().time()
        if not msg.reply.startswith(ACK_PREFIX):
            status, words = status_of(msg)
            if ask is not None and status != _HEARTBEAT and msg.subject.endswith(f".{ask.number}"):
                ask.end(status, words)
            return
        marks = read_marks(msg.reply)
        if marks is None:
            return
        if self.last is not None and marks.consumer_seq <= self.last.marks.consumer_seq:
            self.went_back = True
        self.last = Fetched(msg, marks, time.monotonic())
        self.newest_seq = max(self.newest_seq, marks.stream_seq) if marks.deliveries == 1 else self.newest_seq
        self.buffer.append(self.last)
        if ask is not None:
            ask.left -= 1
            if ask.left <= 0:
                ask.end()
