"""What stands in for a queue in Redis, its source and its lease. All note in one journal what they are asked to do."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleet.errors import SourceUnavailable
from fleet.sources.base import Receipt, Received
from fleet.state.queue import Settled, Tracked, Tracking
from tests.acceptance.intake import SourceWithoutGroups

Journal = list[tuple[Any, ...]]


@dataclass
class Lease:
    held: bool = True


@dataclass
class Alarms:
    raised: Counter[str] = field(default_factory=Counter)

    def add(self, category: str, severity: str, text: str, *, logged: bool = False) -> None:
        self.raised[category] += 1


class Source(SourceWithoutGroups):
    """Knows every handle but those that are `expired`. Once away it answers nothing, until `away` is used up."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal
        self.away = 0

    async def ack(self, held: Sequence[Receipt]) -> list[bool]:
        self._reach()
        self._journal.append(("ack", *(one.broker_id for one in held)))
        return await super().ack(held)

    async def nack(self, held: Sequence[tuple[Receipt, int]]) -> list[bool]:
        self._reach()
        self._journal.append(("nack", *((one.handle, delay_ms) for one, delay_ms in held)))
        return [one.handle not in self.expired for one, _ in held]

    async def extend(self, held: Sequence[Receipt], visibility_ms: int) -> list[bool]:
        self._reach()
        self._journal.append(("extend", *(one.broker_id for one in held)))
        return [True] * len(held)

    async def poll(self, max_messages: int, wait_ms: int) -> list[Received]:
        raise AssertionError("nobody polls here")

    def _reach(self) -> None:
        if self.away:
            self.away -= 1
            raise SourceUnavailable


class Queue:
    """What is untracked was tracked, under a newer handle than anybody looked at, unless it is in `forgotten`."""

    name = "q"
    epoch = "7"

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.settles: list[list[Settled]] = []
        """What each look at the settled list finds, in turn."""
        self.applied: list[int] = []
        self.nothing_left = asyncio.Event()
        """A look found the settled list empty."""
        self.verdicts: list[Tracking] = []
        self.records: dict[str, Tracked] = {}
        self.pages: list[list[Tracked]] = []
        """All that is tracked, for who looks through it."""
        self.forgotten: set[str] = set()
        self.hidden_ms: Mapping[str, int] = {}

    async def settled(self, *, applied: int, want: int) -> list[Settled]:
        self.applied.append(applied)
        if not self.settles:
            self.nothing_left.set()
            return []
        return self.settles.pop(0)

    async def track(self, messages: Sequence[Sequence[str]], *, targets: Any, orders: Any) -> list[Tracking]:
        self._journal.append(("track", *(message[0] for message in messages)))
        return self.verdicts

    async def untrack(
        self,
        messages: Sequence[tuple[str, str]],
        *,
        only_unsettled: bool = False,
        hidden_ms: Mapping[str, int] | None = None,
    ) -> dict[str, str]:
        self._journal.append(("untrack", *(broker_id for broker_id, _ in messages)))
        self.hidden_ms = hidden_ms or {}
        return {broker_id: f"newest-{broker_id}" for broker_id, _ in messages if broker_id not in self.forgotten}

    async def tracked(self, broker_ids: Sequence[str]) -> list[Tracked | None]:
        return [self.records.get(broker_id) for broker_id in broker_ids]

    async def all_tracked(self) -> AsyncIterator[list[Tracked]]:
        self._journal.append(("look",))
        for page in self.pages:
            yield page

    async def bury(self, letters: Sequence[str], *, keep: int) -> None:
        self._journal.append(("bury", len(letters)))


def received(broker_id: str, group: str | None = "g", **body: Any) -> Received:
    content = {"id": broker_id, "poolCode": "P", "mediationTarget": "http://127.0.0.1:9/", **body}
    return Received(broker_id, f"handle-{broker_id}", json.dumps(content).encode(), group)


def tracked(
    broker_id: str,
    *,
    token: str = "1",
    state: str = "t",
    pool: str = "P",
    tracked_ms: int = 0,
    group: str = "g",
    order: str = "",
) -> Tracked:
    return Tracked(broker_id, token, state, pool, f"id-{broker_id}", group, tracked_ms, f"handle-{broker_id}", order)
