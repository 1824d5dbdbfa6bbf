"""What every model of a queue has: a broker somewhere on the network, and a source in a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fleet.errors import SourceUnavailable
from fleet.sources.base import Depth, Receipt, Received
from tests.simulation.clock import BEGAN_S
from tests.simulation.loop import Loop, Process
from tests.simulation.network import Host, Network


@dataclass(slots=True)
class Stored:
    """One message in a broker."""

    seq: int
    group: str | None
    body: bytes
    visible_ms: float = 0.0
    shown: int = 0
    is_out: bool = False
    """Given to somebody, and not back yet; lapses when `visible_ms` comes."""
    session: int = 0


@dataclass(slots=True)
class Given:
    """One message as a receive returned it."""

    seq: int
    receipt: str
    group: str | None
    body: bytes
    count: int


@dataclass(slots=True)
class Conclusion:
    seq: int
    receipt: str
    delay_ms: float | None = None
    """None deletes it."""
    extends: bool = False
    ok: bool = field(default=False)


class Broker(Host):
    """A queue on a server. `clock_offset_ms` is what a fault steps."""

    loses_polls = True
    """Whether an answer with messages may be lost on the line: they are then out, and nobody has them."""

    def __init__(self, loop: Loop, name: str) -> None:
        super().__init__(name, timeout_s=8.0)
        self.loop = loop
        self.messages: dict[int, Stored] = {}
        self.clock_offset_ms = 0.0
        self.next_seq = 1
        self.void_acks: dict[str, str] = {}
        """Broker id → message, for what was acked under a handle that was not the newest: its message may come
        again."""
        self._waiters: list[asyncio.Future[None]] = []

    def acked_in_vain(self, one: Stored) -> None:
        self.void_acks[str(one.seq)] = msgspec.json.decode(one.body)["id"]

    def refusal(self) -> Exception:
        return SourceUnavailable(f"queue {self.name} is away")

    def silence(self) -> Exception:
        return SourceUnavailable(f"queue {self.name} does not answer")

    def now_ms(self) -> float:
        return (BEGAN_S + self.loop.now_s) * 1000 + self.clock_offset_ms

    # What producers do -------------------------------------------------------------------------------

    def publish(self, group: str | None, body: bytes) -> int:
        seq = self.next_seq
        self.next_seq += 1
        self.messages[seq] = Stored(seq, group, body)
        self.wake()
        return seq

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def changed(self) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters.append(waiter)
        return waiter

    @property
    def left(self) -> int:
        return len(self.messages)

    # What consumers do -------------------------------------------------------------------------------

    def receive(self, most: int, visibility_ms: int, session: int) -> list[Given]:
        raise NotImplementedError

    def conclude(self, conclusions: list[Conclusion], session: int) -> list[bool]:
        done = [self.conclude_one(conclusion, session) for conclusion in conclusions]
        self.wake()
        return done

    def conclude_one(self, conclusion: Conclusion, session: int) -> bool:
        raise NotImplementedError

    def depth(self) -> Depth:
        now = self.now_ms()
        invisible = sum(one.visible_ms > now for one in self.messages.values())
        return Depth(waiting=self.left - invisible, invisible=invisible, oldest_s=None)

    def connect(self, session: int) -> None:
        """A source opened, or connected again."""

    def disconnect(self, session: int) -> None:
        """The process of a session is gone, or it closed."""

    def line_broke(self, session: int) -> None:
        """What was on the line to a session did not come."""

    def shake(self) -> None:
        """All connections break."""

    def next_due_s(self) -> float:
        """How long until something more may be visible, if nobody does anything."""
        now = self.now_ms()
        return (
            min((one.visible_ms - now for one in self.messages.values() if one.visible_ms > now), default=1e9) / 1000
            + 0.001
        )

    def give(self, one: Stored, now_ms: float, visibility_ms: float, session: int) -> Given:
        one.shown += 1
        one.visible_ms = now_ms + visibility_ms
        one.is_out = True
        one.session = session
        return Given(one.seq, f"{one.seq}.{one.shown}", one.group, one.body, one.shown)


_sessions = 0


class ModelSource:
    """The adapter side: what `fleet/sources/base.py` asks for, over the simulated network."""

    holds_groups = False
    shows_in_order = True
    is_looked_into = False
    gives_few_groups = False
    crash_wait_ms = 0

    def __init__(self, *, name: str, broker: Broker, network: Network, loop: Loop, visibility_ms: int) -> None:
        self.name = name
        self.visibility_ms = visibility_ms
        self._broker = broker
        self._network = network
        self._loop = loop
        self._process: Process | None = loop.process
        broker.next_session = getattr(broker, "next_session", 0) + 1  # type: ignore[attr-defined]
        self._session: int = broker.next_session  # type: ignore[attr-defined]
        self._is_open = False
        self._over: list[Received] = []
        """Received by a poll that was cancelled."""
        self._receiving: asyncio.Future[Any] | None = None
        self._may_have_lost = False
        """What was on its way as we closed did not come."""
        self._line = 0
        """The line that was last asked on. A broken one brings no answer, and what was asked on it reaches nobody."""

    def _call(self, what: str, work: Callable[[], Any]) -> asyncio.Future[Any]:
        return self._network.call(self._process, self._broker, what, work)

    async def open(self) -> None:
        await self._call("open", lambda: self._broker.connect(self._session))
        self._is_open = True
        if self._process is not None:
            self._process.on_death.append(self._died)

    def _died(self) -> None:
        self._line += 1
        if self._is_open:
            self._broker.disconnect(self._session)

    async def poll(self, max_messages: int, wait_ms: int) -> list[Received]:
        give_up_s = self._loop.now_s + wait_ms / 1000
        while True:
            # Before asking: what comes between the answer and the wait counts.
            changed = self._broker.changed()
            await self._receive(max_messages)
            left_s = give_up_s - self._loop.now_s
            if self._over or left_s <= 0 or not self._is_open:
                taken, self._over = self._over[:max_messages], self._over[max_messages:]
                return taken
            try:
                async with asyncio.timeout(min(left_s, self._broker.next_due_s())):
                    await changed
            except TimeoutError:
                continue

    async def _receive(self, most: int) -> None:
        """A call once begun is not cancelled: what it returns is ours."""
        if self._over or most < 1:
            return
        if self._receiving is None:
            self._line += 1
            line = self._line
            self._receiving = self._call("receive", lambda: self._given(most, line))
        try:
            given: list[Given] = await asyncio.shield(self._receiving)
        except asyncio.CancelledError:
            raise
        except SourceUnavailable:
            self._receiving = None
            if not self._broker.loses_polls:
                self._broker.line_broke(self._session)
            raise
        self._receiving = None
        self._over = [self.received(one) for one in given]

    def _given(self, most: int, line: int) -> list[Given]:
        receiving = self._receiving
        if not self._broker.loses_polls and (receiving is None or receiving.done() or line != self._line):
            return []
        return self._broker.receive(most, self.visibility_ms, self._session)

    def received(self, one: Given) -> Received:
        return Received(str(one.seq), one.receipt, one.body, one.group, one.count)

    async def ack(self, held: Sequence[Receipt]) -> list[bool]:
        return await self._conclude([_conclusion(one) for one in held])

    async def nack(self, held: Sequence[tuple[Receipt, int]]) -> list[bool]:
        return await self._conclude([_conclusion(one, delay_ms) for one, delay_ms in held])

    async def extend(self, held: Sequence[Receipt], visibility_ms: int) -> list[bool]:
        return await self._conclude([_conclusion(one, visibility_ms, extends=True) for one in held])

    async def _conclude(self, conclusions: list[Conclusion]) -> list[bool]:
        if not self._is_open:
            raise SourceUnavailable(f"queue {self.name} is closed")
        if not conclusions:
            return []
        broker, session = self._broker, self._session
        done: list[bool] = await self._call("conclude", lambda: broker.conclude(conclusions, session))
        return done

    async def depth(self) -> Depth:
        depth: Depth = await self._call("depth", self._broker.depth)
        return depth

    async def close(self) -> None:
        if not self._is_open:
            return
        try:
            if self._receiving is not None:
                self._over = [self.received(one) for one in await self._receiving]
                self._receiving = None
            if self._over:
                over, self._over = self._over, []
                await self.nack([(Receipt(one.broker_id, one.handle), 0) for one in over])
        except SourceUnavailable:
            self._over = []
            self._may_have_lost = True
        self._is_open = False
        self._broker.disconnect(self._session)


def _conclusion(held: Receipt, delay_ms: float | None = None, *, extends: bool = False) -> Conclusion:
    return Conclusion(int(held.broker_id), held.handle, delay_ms, extends)
