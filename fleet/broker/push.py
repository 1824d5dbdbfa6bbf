"""A subscription as the router reads it: many at a time, with a visibility timeout of the router's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleet.broker.directory import Directory, Pulled
from fleet.broker.errors import FailedPrecondition
from fleet.broker.message import PulledMessage
from fleet.broker.pull import Puller, What, acked, hidden, nacked, rules_of
from fleet.broker.records import SubscriptionRecord
from fleet.state.engine import PER_LANE, Depths, Rules

BATCH = 500


class Push:
    """All options of the subscription count, except its ack deadline: the router says how long it takes."""

    def __init__(self, directory: Directory, puller: Puller, name: str) -> None:
        self._directory = directory
        self._puller = puller
        self.name = name
        self.prefix = ""
        """What a signal says of its messages; known once it was looked at."""

    async def look(self) -> SubscriptionRecord:
        """SubscriptionNotFound, or FailedPrecondition where its topic was deleted."""
        for _ in range(2):
            record = await self._directory.with_subscription(self.name, _record_of)
            if not record.detached:
                return record
            # Nobody tells us when it is made anew.
            self._directory.forget(subscription=self.name)
        raise FailedPrecondition(f"subscription {self.name} has no topic any more: {record.topic} was deleted")

    async def receive(self, most: int, visibility_ms: int) -> tuple[list[PulledMessage], int | None]:
        """If there is nothing: in how many ms there may be something, or None for never."""
        await self.look()
        pull = await self._puller.pull(self.name, most, lambda pulled: _rules(pulled, visibility_ms))
        self.prefix = pull.prefix
        return pull.messages, pull.due_ms

    async def ack(self, ack_ids: Sequence[str]) -> list[bool]:
        """False for what was shown again since, or whose time is over. What is gone counts as acked."""
        return await self._conclude([(one, acked) for one in ack_ids])

    async def nack(self, ack_ids: Sequence[tuple[str, int]]) -> list[bool]:
        """Each after its own delay in ms, or its backoff where that is longer."""

        def after(delay_ms: int) -> What:
            return lambda pulled, showing: nacked(pulled, showing, least_ms=delay_ms)

        return await self._conclude([(one, after(delay_ms)) for one, delay_ms in ack_ids])

    async def extend(self, ack_ids: Sequence[str], visibility_ms: int) -> list[bool]:
        return await self._conclude([(one, hidden(visibility_ms)) for one in ack_ids])

    async def depths(self) -> Depths:
        return await self._directory.with_subscription(self.name, lambda pulled: pulled.engine.depths())

    async def carry(self) -> None:
        """What another moved and did not bring."""
        await self._directory.with_subscription(self.name, self._puller.on_moved)

    async def _conclude(self, verdicts: Sequence[tuple[str, What]]) -> list[bool]:
        flags: list[bool] = []
        for first in range(0, len(verdicts), BATCH):
            flags += await self._puller.conclude(self.name, verdicts[first : first + BATCH])
        return flags


async def _record_of(pulled: Pulled) -> SubscriptionRecord:
    return pulled.record


def _rules(pulled: Pulled, visibility_ms: int) -> Rules:
    # Where attempts are counted, those behind the first of a key would spend theirs each time that one fails.
    per_lane = 1 if pulled.record.options.dead_letter_policy else PER_LANE
    return replace(rules_of(pulled), visibility_ms=visibility_ms, per_lane=per_lane)
