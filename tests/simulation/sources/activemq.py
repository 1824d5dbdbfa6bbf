"""ActiveMQ over STOMP: a message belongs to its connection until that ends; a nack with a delay is a copy at the
end."""

from __future__ import annotations

import heapq

from fleet.sources.base import Depth
from tests.simulation.loop import Loop
from tests.simulation.network import Network
from tests.simulation.sources.broker import Broker, Conclusion, Given, ModelSource, Stored

_NEVER = float("inf")
HEARTBEAT_MS = 4000
_SILENT_S = 2.4 * HEARTBEAT_MS / 1000
"""The longest that the broker was seen to keep a session that it hears nothing from."""


class ActiveMqBroker(Broker):
    loses_polls = False

    def __init__(self, loop: Loop, name: str) -> None:
        super().__init__(loop, name)
        self._line: list[tuple[int, int]] = []
        """(place, seq) of what can be given: a delayed copy takes its place after what is there by then."""
        self._places = 0
        self._place_of: dict[int, int] = {}
        self._delayed = 0
        self._sessions: set[int] = set()

    def publish(self, group: str | None, body: bytes) -> int:
        seq = super().publish(group, body)
        self._append(self.messages[seq])
        return seq

    def _append(self, one: Stored) -> None:
        self._places += 1
        self._place_of[one.seq] = self._places
        one.visible_ms = 0.0
        heapq.heappush(self._line, (self._places, one.seq))

    def connect(self, session: int) -> None:
        self._sessions.add(session)

    def disconnect(self, session: int) -> None:
        """The broker notices a closed line at once, and a dead process within a heartbeat or two."""
        if session in self._sessions:
            self._sessions.discard(session)
            self.loop.later(0.01, self._take_back, session)

    def line_broke(self, session: int) -> None:
        self._take_back(session)

    def shake(self) -> None:
        for session in sorted(self._sessions):
            self._take_back(session)

    def _take_back(self, session: int) -> None:
        for one in self.messages.values():
            if one.is_out and one.session == session:
                self._line_up(one)
        self.wake()

    def _line_up(self, one: Stored) -> None:
        one.is_out = False
        one.visible_ms = 0.0
        heapq.heappush(self._line, (self._place_of[one.seq], one.seq))

    def receive(self, most: int, visibility_ms: int, session: int) -> list[Given]:
        given: list[Given] = []
        while self._line and len(given) < most:
            _, seq = heapq.heappop(self._line)
            one = self.messages.get(seq)
            if one is not None and not one.is_out and one.visible_ms <= 0:
                given.append(self.give(one, 0.0, _NEVER, session))
        return given

    def conclude_one(self, conclusion: Conclusion, session: int) -> bool:
        one = self.messages.get(conclusion.seq)
        if one is None:
            return conclusion.delay_ms is None and not conclusion.extends
        if not one.is_out or one.session != session or conclusion.receipt != f"{one.seq}.{one.shown}":
            return False
        if conclusion.extends:
            return True
        if conclusion.delay_ms is None:
            del self.messages[one.seq]
        elif conclusion.delay_ms <= 0:
            self._line_up(one)
        else:
            one.is_out = False
            self._delayed += 1
            self.loop.later(conclusion.delay_ms / 1000, self._show_copy, one)
        return True

    def _show_copy(self, one: Stored) -> None:
        self._delayed -= 1
        self._append(one)
        self.wake()

    def depth(self) -> Depth:
        out = sum(one.is_out for one in self.messages.values())
        return Depth(
            waiting=self.left - out - self._delayed,
            invisible=out + self._delayed,
            oldest_s=None,
            delayed=self._delayed,
        )


class ActiveMqSource(ModelSource):
    def __init__(self, *, name: str, broker: Broker, network: Network, loop: Loop, visibility_ms: int) -> None:
        super().__init__(name=name, broker=broker, network=network, loop=loop, visibility_ms=visibility_ms)
        self.crash_wait_ms = 3 * HEARTBEAT_MS

    async def open(self) -> None:
        await super().open()
        if self._process is not None:
            self._process.on_stop.append(self._falls_silent)

    def _falls_silent(self) -> None:
        """A process that is stopped sends no heartbeat."""
        process = self._process
        assert process is not None
        stops = process.stops

        def hear() -> None:
            if self._is_open and process.is_stopped and process.stops == stops:
                self._broker.line_broke(self._session)

        self._loop.later(_SILENT_S, hear)
