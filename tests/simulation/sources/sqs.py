"""SQS. FIFO holds a whole group while any message of it is invisible; standard promises no order."""

from __future__ import annotations

import random

from fleet.sources.base import Depth
from tests.simulation.loop import Loop
from tests.simulation.sources.broker import Broker, Conclusion, Given, ModelSource

_BATCH = 10


class SqsBroker(Broker):
    def __init__(self, loop: Loop, name: str, *, is_fifo: bool, chance: random.Random) -> None:
        super().__init__(loop, name)
        self.is_fifo = is_fifo
        self._chance = chance

    def receive(self, most: int, visibility_ms: int, session: int) -> list[Given]:
        now = self.now_ms()
        visible = [one for one in self.messages.values() if one.visible_ms <= now]
        if self.is_fifo:
            held = {one.group for one in self.messages.values() if one.visible_ms > now}
            visible = [one for one in visible if one.group not in held]
        else:
            self._chance.shuffle(visible)
        return [self.give(one, now, visibility_ms, session) for one in visible[: min(most, _BATCH)]]

    def conclude_one(self, conclusion: Conclusion, session: int) -> bool:
        one = self.messages.get(conclusion.seq)
        now = self.now_ms()
        if one is None:
            # Gone: as good as deleted. There is nothing to show again.
            return conclusion.delay_ms is None
        is_newest = conclusion.receipt == f"{one.seq}.{one.shown}"
        if self.is_fifo and not (is_newest and one.visible_ms > now):
            return False  # an expired receipt is refused
        if not is_newest:
            if conclusion.delay_ms is None:
                self.acked_in_vain(one)
            return conclusion.delay_ms is None and not self.is_fifo  # says yes, and does nothing
        if conclusion.delay_ms is None:
            del self.messages[one.seq]
        elif one.visible_ms > now:
            one.visible_ms = now + conclusion.delay_ms
        return True

    def depth(self) -> Depth:
        found = super().depth()
        return Depth(waiting=found.waiting, invisible=found.invisible, oldest_s=None)


class FifoSource(ModelSource):
    holds_groups = True
    gives_few_groups = True


class StandardSource(ModelSource):
    shows_in_order = False

    def received(self, one: Given):  # type: ignore[no-untyped-def]
        received = super().received(one)
        self._newest = getattr(self, "_newest", {})
        self._newest[received.broker_id] = received.handle
        return received

    async def ack(self, held):  # type: ignore[no-untyped-def]
        newest = getattr(self, "_newest", {})
        current = [newest.get(one.broker_id, one.handle) == one.handle for one in held]
        done = iter(await super().ack([one for one, ok in zip(held, current, strict=True) if ok]))
        return [next(done) if ok else False for ok in current]
