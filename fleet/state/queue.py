"""A source queue in Redis: what was taken from it and not yet acked there. One typed wrapper per script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from zlib import crc32

from fleet.errors import Fenced, Forgotten
from fleet.state.connect import Client, translated
from fleet.state.keys import QueueKeys
from fleet.state.registry import Registry
from fleet.state.scan import pages
from fleet.state.scripts import SEP, script

_SETTLED_LOOKED_AT = 10_000
HIDDEN_REMEMBERED = 10_000
"""Messages of each queue that were given back and are hidden there: some 100 bytes each."""


@dataclass(frozen=True, slots=True)
class Tracking:
    """What `track` says of one message."""

    verdict: Literal["new", "redelivered", "copy", "acked"]
    token: str = ""


@dataclass(frozen=True, slots=True)
class Settled:
    """One outcome on its way to the source."""

    broker_id: str
    token: str
    acked: bool
    delay_ms: int
    handle: str
    """Empty if the message is not tracked under that token any more: nothing is left to do."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """A message that was given back to its queue, which hides it until a time."""

    message_id: str
    broker_id: str
    pool: str
    lane: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class Tracked:
    """A message between source and endpoint."""

    broker_id: str
    token: str
    state: str
    pool: str
    message_id: str
    lane: str
    tracked_ms: int
    handle: str
    order: str = ""
    """Its tier, and after that what it asks for after a failure. '' if it asks for no order, or if its source holds
    its group or keeps no order."""


class Queue:
    """One source queue, seen by its owner (`epoch`) or by a worker (which needs none)."""

    def __init__(self, client: Client, name: str, *, epoch: str = "", now_ms: str = "") -> None:
        self.client = client
        self.name = name
        self.keys = QueueKeys(name)
        self.epoch = epoch
        self.now_ms = now_ms
        self._last_token = 0

    async def track(
        self,
        messages: Sequence[tuple[str, str, str, str, str]],
        *,
        targets: Sequence[str] = (),
        orders: Sequence[str] = (),
    ) -> list[Tracking]:
        """Note (broker id, message id, pool, lane, handle) of each before any pool hears of it.

        One with the id and the target of another is a copy of that; with a different target it is a message of its
        own, as each attempt of a dispatch job is. `orders`: one for each, see `Tracked.order`.
        """
        arguments: list[str | int] = [self.now_ms, self.epoch, self._last_token]
        none = [""] * len(messages)
        for message, target, order in zip(messages, targets or none, orders or none, strict=True):
            arguments += (*message, f"{crc32(target.encode()):x}", order)
        s = script("track")
        answer = await s(self.client, s.keys_of(self.keys), arguments)
        self._check(answer[0])
        token, self._last_token = int(answer[1]), int(answer[2])
        tracking = []
        for verdict in answer[3:]:
            if verdict == "n":
                tracking.append(Tracking("new", str(token)))
                token += 1
            else:
                tracking.append(_tracking(verdict))
        return tracking

    async def report(self, outcomes: Sequence[tuple[str, str, str]]) -> int:
        """Copy (broker id, token, verdict) to the settled list. Idempotent."""
        arguments: list[str | int] = [self.name]
        for outcome in outcomes:
            arguments += outcome
        s = script("report")
        new: int = await s(self.client, s.keys_of(self.keys), arguments)
        return new

    async def settled(self, *, applied: int, want: int) -> list[Settled]:
        """Drop the first `applied` of the settled list, read the next."""
        s = script("settled")
        answer = await s(self.client, s.keys_of(self.keys), [self.epoch, self._last_token, applied, want])
        self._check(answer[0])
        return [
            Settled(
                answer[i],
                answer[i + 1],
                answer[i + 2] == "a",
                int(answer[i + 2][1:] or 0),
                answer[i + 3],
            )
            for i in range(1, len(answer), 4)
        ]

    async def untrack(
        self,
        messages: Sequence[tuple[str, str]],
        *,
        only_unsettled: bool = False,
        hidden_ms: Mapping[str, int] | None = None,
    ) -> dict[str, str]:
        """Forget (broker id, token); returns those still tracked under that token, each with its newest handle.

        A nack after this goes under that handle: the message may have been redelivered since the caller looked.

        `hidden_ms`: by broker id, for how long the source hides what is given back to it. It is remembered until
        then, for people who ask.
        """
        arguments: list[str | int] = [self.now_ms, self.epoch, "t" if only_unsettled else "", HIDDEN_REMEMBERED]
        for broker_id, token in messages:
            hidden = hidden_ms and hidden_ms.get(broker_id)
            arguments += (broker_id, f"{token}{SEP}{hidden}" if hidden else token)
        s = script("untrack")
        answer = await s(self.client, s.keys_of(self.keys), arguments)
        self._check(answer[0])
        return dict(zip(answer[1::2], answer[2::2], strict=True))

    async def bury(self, letters: Sequence[str], *, keep: int) -> None:
        s = script("bury")
        self._check(await s(self.client, s.keys_of(self.keys), [self.epoch, keep, *letters]))

    async def tracked_count(self) -> int:
        with translated():
            return int(await self.client.hlen(self.keys.tracked))

    async def out_count(self) -> int:
        """How many tracked messages are out at the source, also those whose ack is settled and not yet applied there.

        One that is acked there and still tracked does not count: its handle had expired, and it waits for its
        redelivery.
        """
        # Asked first: what is settled while we look is then in neither count, and too few only means a wait.
        out = sum(settled.acked for settled in await self.settled(applied=0, want=_SETTLED_LOOKED_AT))
        async for page in self.all_tracked():
            out += sum(tracked.state != "a" for tracked in page)
        return out

    async def settled_count(self) -> int:
        with translated():
            return int(await self.client.llen(self.keys.settled))

    async def tracked(self, broker_ids: Sequence[str]) -> list[Tracked | None]:
        with translated():
            records = await self.client.hmget(self.keys.tracked, list(broker_ids)) if broker_ids else []
        return [_tracked(b, r) if r else None for b, r in zip(broker_ids, records, strict=True)]

    async def all_tracked(self) -> AsyncIterator[list[Tracked]]:
        """Everything tracked, some hundred at a time."""
        async for page in pages(self.client.hscan, self.keys.tracked, count=500):
            yield [_tracked(broker, record) for broker, record in page.items()]

    async def hidden(self) -> AsyncIterator[list[Hidden]]:
        """What was given back with a delay that is not over, some hundred at a time. Of too many, those whose delays
        end last are remembered."""
        now = int(self.now_ms or await Registry(self.client).clock_ms())
        async for page in pages(self.client.zscan, self.keys.delayed, count=500):
            yield [_hidden(member, int(until)) for member, until in page if until > now]

    def _check(self, tag: str) -> None:
        if tag == "stale":
            raise Fenced(f"queue {self.name} has another owner")
        if tag == "forgot":
            raise Forgotten(f"queue {self.name}: Redis has lost what was tracked last")


def _tracking(verdict: str) -> Tracking:
    match verdict[0]:
        case "q":
            return Tracking("copy")
        case "a":
            return Tracking("acked", verdict[1:])
        case _:
            return Tracking("redelivered")


def _hidden(member: str, until_ms: int) -> Hidden:
    message_id, broker_id, pool, lane = member.split(SEP)
    return Hidden(message_id, broker_id, pool, lane, until_ms)


def _tracked(broker_id: str, record: str) -> Tracked:
    handle, token, state, message_id, pool, lane, tracked_ms, *order = record.split(SEP)
    # A record from an older release says nothing about its order.
    return Tracked(broker_id, token, state, pool, message_id, lane, int(tracked_ms), handle, *order[:1])
