"""What one connection to ActiveMQ was given: waiting to be taken, taken, resting, settled.

It ends with its connection: the broker then gives all of it out again. Everything here runs in the event loop.
"""

from __future__ import annotations

import asyncio
import heapq
import re
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from fleet.sources.activemq.frames import COUNT, DELAY, GROUP, ID
from fleet.sources.base import Received

HANDLE = re.compile(r"[0-9a-f]{12}\.[0-9]{1,18}")
"""A handle of any connection: the connection's mark, and a number."""
_REMEMBERED = 20_000
_LONGEST_ID = 512
"""The broker's own ids are some 60 characters."""


class Recent:
    """A set that forgets its oldest members."""

    def __init__(self) -> None:
        self._members: dict[str, None] = {}

    def add(self, member: str) -> None:
        self._members[member] = None
        if len(self._members) > _REMEMBERED:
            del self._members[next(iter(self._members))]

    def __contains__(self, member: str) -> bool:
        return member in self._members


@dataclass(slots=True, order=True)
class Delivery:
    """One message from the broker, as this connection has it. Deliveries sort by the order in which they came."""

    place: int
    broker_id: str = field(compare=False)
    headers: dict[str, str] = field(compare=False)
    body: bytes = field(compare=False)
    receive_count: int = field(compare=False)
    ack_ids: list[str] = field(compare=False)
    handle: str = field(compare=False, default="")

    def received(self) -> Received:
        return Received(self.broker_id, self.handle, self.body, self.headers.get(GROUP), self.receive_count)


class Memory:
    """What outlives a connection."""

    def __init__(self) -> None:
        self.acked = Recent()
        """Handles: they make an ack idempotent, even if the connection was lost before a whole call was answered."""
        self.unsettled = Recent()
        """Ids of what earlier connections were given. A broker that was restarted does not mark it as redelivered."""
        self.done = Recent()
        """Ids of what was acked and may be in the queue once more: a crash in the middle of a nack leaves two."""


class Session:
    """One subscription."""

    def __init__(self, *, memory: Memory, ack_at_once: Callable[[str], None]) -> None:
        self.is_subscribed = False
        self.out: dict[str, Delivery] = {}
        """What a poll returned and nobody has settled, by handle."""
        self.arrived = asyncio.Event()
        self._mark = secrets.token_hex(6)
        self._memory = memory
        self._ack_at_once = ack_at_once
        self._known: dict[str, Delivery] = {}
        self._fresh: deque[Delivery] = deque()
        self._returned: list[Delivery] = []
        """Given out before any fresh one: they were taken or delayed before."""
        self._resting: dict[int, asyncio.TimerHandle] = {}
        self._places = count()
        self._handles = count(1)

    def may_hold(self, broker_id: str, most: int) -> bool:
        """Whether the broker may still have it: it gave it to us, or gave us all that it may at a time (`most`), so
        more may follow."""
        return broker_id in self._known or len(self._known) >= most

    def waiting(self) -> int:
        """How many the broker has given to us and we have given to nobody."""
        return len(self._fresh) + len(self._returned)

    def add(self, headers: dict[str, str], body: bytes) -> None:
        """A message came. The same id twice is one message: see `copy_of`."""
        broker_id, ack_id = _id_of(headers), headers["ack"]
        came_before = headers.get("redelivered") == "true" or broker_id in self._memory.unsettled
        earlier = _number(headers.get(COUNT)) + came_before
        if earlier and broker_id in self._memory.done:
            self._ack_at_once(ack_id)
            return
        twin = self._known.get(broker_id)
        if twin is not None:
            twin.ack_ids.append(ack_id)
            return
        delivery = Delivery(next(self._places), broker_id, headers, body, earlier + 1, [ack_id])
        self._known[broker_id] = delivery
        # A broker that delays nothing (schedulerSupport is off) passes this header on to us: then we delay it.
        delay_ms = _number(headers.get(DELAY))
        if delay_ms:
            self.rest(delivery, delay_ms)
        else:
            self._fresh.append(delivery)

    def take(self, most: int) -> list[Received]:
        """The oldest, each under a new handle."""
        taken: list[Received] = []
        while len(taken) < most and (self._returned or self._fresh):
            delivery = heapq.heappop(self._returned) if self._returned else self._fresh.popleft()
            delivery.handle = f"{self._mark}.{next(self._handles)}"
            self.out[delivery.handle] = delivery
            taken.append(delivery.received())
        if not self.waiting():
            self.arrived.clear()
        return taken

    def show_again(self, delivery: Delivery) -> None:
        """At its old place. The broker is not told: as far as it knows, we have had the message all along."""
        delivery.receive_count += 1
        heapq.heappush(self._returned, delivery)
        self.arrived.set()

    def rest(self, delivery: Delivery, delay_ms: int) -> None:
        """Keep it for a while, and then let it be taken."""

        def wake() -> None:
            del self._resting[delivery.place]
            heapq.heappush(self._returned, delivery)
            self.arrived.set()

        self._known.setdefault(delivery.broker_id, delivery)
        self._resting[delivery.place] = asyncio.get_running_loop().call_later(delay_ms / 1000, wake)

    def leave(self, delivery: Delivery) -> None:
        """What comes under its id from now on is another delivery."""
        if self._known.get(delivery.broker_id) is delivery:
            del self._known[delivery.broker_id]

    def keep(self, delivery: Delivery) -> None:
        """It was to be settled, and was not."""
        self._known.setdefault(delivery.broker_id, delivery)
        self.out[delivery.handle] = delivery

    def acknowledged(self, delivery: Delivery) -> None:
        """The broker has deleted it. One that came more than once may have left a copy behind."""
        self.leave(delivery)
        self._memory.acked.add(delivery.handle)
        if delivery.receive_count > 1:
            self._memory.done.add(delivery.broker_id)

    def end(self) -> None:
        """The connection is gone, and what it was given now belongs to somebody else."""
        self.is_subscribed = False
        self._fresh.clear()
        self._returned.clear()
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()
        for broker_id in self._known:
            self._memory.unsettled.add(broker_id)
        self.arrived.set()


def _id_of(headers: dict[str, str]) -> str:
    """For a copy, the id of its original. A header with our name and a value that we would not write is somebody
    else's."""
    copied = headers.get(ID, "")
    return copied if copied and len(copied) <= _LONGEST_ID and copied.isprintable() else headers["message-id"]


def _number(text: str | None) -> int:
    """Anybody may write headers: what is not a plausible number counts as 0."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 12 else 0
