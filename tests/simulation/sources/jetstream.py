"""NATS JetStream with a pull consumer and explicit acks: redelivers what was not acked in time, before anything new."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.errors import SourceUnavailable
from fleet.sources.base import Depth, Receipt, Received
from tests.simulation.loop import Loop
from tests.simulation.network import Network
from tests.simulation.sources.broker import Broker, Conclusion, Given, ModelSource


class JetStreamBroker(Broker):
    loses_polls = False

    def __init__(self, loop: Loop, name: str) -> None:
        super().__init__(loop, name)
        self._first_new = 1

    def receive(self, most: int, visibility_ms: int, session: int) -> list[Given]:
        now = self.now_ms()
        pending = [one for one in self.messages.values() if one.shown]
        due = sorted((one for one in pending if one.visible_ms <= now), key=lambda one: (one.visible_ms, one.seq))
        given = [self.give(one, now, visibility_ms, session) for one in due[:most]]
        while len(given) < most and self._first_new < self.next_seq:
            one = self.messages[self._first_new]
            self._first_new += 1
            given.append(self.give(one, now, visibility_ms, session))
        return given

    def conclude_one(self, conclusion: Conclusion, session: int) -> bool:
        one = self.messages.get(conclusion.seq)
        if one is None:
            return conclusion.delay_ms is None
        if conclusion.delay_ms is None:
            if conclusion.receipt != f"{one.seq}.{one.shown}":
                self.acked_in_vain(one)  # its newest showing is on its way to somebody
            del self.messages[one.seq]
        else:
            one.visible_ms = self.now_ms() + conclusion.delay_ms
        return True

    def depth(self) -> Depth:
        pending = sum(bool(one.shown) for one in self.messages.values())
        return Depth(waiting=self.left - pending, invisible=pending, oldest_s=None)


class JetStreamSource(ModelSource):
    """Refuses the handles that it knows to be old, as the adapter does, and asks again for what was lost on the
    line."""

    def __init__(self, *, name: str, broker: Broker, network: Network, loop: Loop, visibility_ms: int) -> None:
        super().__init__(name=name, broker=broker, network=network, loop=loop, visibility_ms=visibility_ms)
        self.crash_wait_ms = visibility_ms
        self._void: dict[str, str] = {}
        """The newest handle by broker id; '' if the message was given back under it."""
        self._on_the_line: list[Given] = []
        self._lost: list[Given] = []

    async def _receive(self, most: int) -> None:
        """What was on a line that broke is shown again before anything new is asked for."""
        if self._lost:
            await self._conclude([Conclusion(one.seq, one.receipt, 0.0) for one in self._lost])
            self._lost = []
        try:
            await super()._receive(most)
        except SourceUnavailable:
            self._lost, self._on_the_line = self._lost + self._on_the_line, []
            raise
        self._on_the_line = []

    def _given(self, most: int, line: int) -> list[Given]:
        given = super()._given(most, line)
        self._on_the_line += given
        return given

    def received(self, one: Given) -> Received:
        received = super().received(one)
        self._void[received.broker_id] = received.handle
        return received

    def _counts(self, held: Receipt) -> bool:
        return self._void.get(held.broker_id, held.handle) == held.handle

    async def ack(self, held: Sequence[Receipt]) -> list[bool]:
        counts = [self._counts(one) for one in held]
        done = iter(await super().ack([one for one, ok in zip(held, counts, strict=True) if ok]))
        return [next(done) if ok else False for ok in counts]

    async def nack(self, held: Sequence[tuple[Receipt, int]]) -> list[bool]:
        counts = [self._counts(one) for one, _ in held]
        done = iter(await super().nack([pair for pair, ok in zip(held, counts, strict=True) if ok]))
        answers = [next(done) if ok else False for ok in counts]
        for (one, _), ok in zip(held, answers, strict=True):
            if ok:
                self._void[one.broker_id] = ""
        return answers

    async def extend(self, held: Sequence[Receipt], visibility_ms: int) -> list[bool]:
        counts = [self._counts(one) for one in held]
        done = iter(await super().extend([one for one, ok in zip(held, counts, strict=True) if ok], visibility_ms))
        return [next(done) if ok else False for ok in counts]

    async def ask_no_more(self) -> None:
        return

    async def close(self) -> None:
        await super().close()
        if self._lost or self._may_have_lost:
            raise SourceUnavailable(f"queue {self.name} was closed while messages were on their way")
