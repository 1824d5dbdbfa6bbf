"""A queue of our own as the router reads it: groups held as SQS FIFO holds them, judged by the clock of Redis alone."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import msgspec

from fleet.state.connect import Client, translated
from fleet.state.engine import DEDUP_MS, DONE, GONE, LOOK, Engine, New, Rules, Verdict, every_body
from fleet.state.keys import OwnQueueKeys

What = Literal["delete", "show", "hide"]


class NewMessage(msgspec.Struct, frozen=True):
    body: bytes
    group: str = ""
    dedup_id: str = ""
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Shown:
    """One showing of a message."""

    number: str
    group: str
    count: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What becomes of a showing: the message is deleted, shown again after `ms`, or hidden for longer."""

    number: str
    count: int
    group: str
    what: What = "delete"
    ms: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """Until when one message is hidden, and whether that is because it was shown."""

    visible_at_ms: int
    shown: bool


@dataclass(frozen=True, slots=True)
class Contents:
    messages: int
    hidden: int
    oldest_ms: int
    is_whole: bool = True
    """Whether the oldest of all was found: of many lanes that wait, only some are looked at."""


class OwnQueue:
    """`now_ms` is for tests; empty means Redis TIME."""

    def __init__(self, client: Client, name: str, *, now_ms: str = "") -> None:
        self.client = client
        self.name = name
        self.keys = OwnQueueKeys(name)
        self._engine = Engine(client, self.keys, kind="f", now_ms=now_ms)

    @property
    def now_ms(self) -> str:
        return self._engine.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: str) -> None:
        self._engine.now_ms = now_ms

    async def send(
        self, messages: Sequence[NewMessage], *, dedup_ms: int = DEDUP_MS, producer: str = "", epoch: int = 0
    ) -> list[str]:
        """Append in order, all or nothing. Returns the number of each, '' if its dedup id was seen before.

        A `producer` that others may replace sends with its epoch: once a newer one has sent, it is refused.
        """
        new = [New(_packed(one.body), one.group, digest_of(one.dedup_id), one.delay_ms) for one in messages]
        sent = await self._engine.send(new, dedup_ms=dedup_ms, producer=producer, epoch=epoch)
        return [str(one.number) if one.is_new else "" for one in sent]

    async def receive(self, most: int, *, visibility_ms: int) -> tuple[list[Shown], int | None]:
        """The oldest messages that may be shown. If there are none, after how many ms one may be, or None for never."""
        taking = await self._engine.receive(most, Rules(visibility_ms))
        shown = [Shown(one.number, one.group, one.times, _unpacked(one.stored)) for one in taking.showings]
        return shown, taking.due_ms

    async def conclude(self, conclusions: Sequence[Conclusion]) -> list[bool]:
        """Delete, show again or hide longer. False for what was shown again since."""
        verdicts = [
            Verdict(c.number, c.count, c.group, "d" if c.what == "delete" else f"{c.what[0]}{c.ms}")
            for c in conclusions
        ]
        results = await self._engine.conclude(verdicts)
        # What is gone counts as deleted.
        return [
            result == DONE or (result == GONE and c.what == "delete")
            for result, c in zip(results, conclusions, strict=True)
        ]

    async def contents(self, *, look: int = LOOK) -> Contents:
        found = await self._engine.depths(look=look)
        return Contents(found.messages, found.hidden, found.oldest_ms, found.is_whole)

    async def purge(self) -> int:
        """Throw away the messages that are there now, shown or not. Returns how many."""
        return await self._engine.purge()

    # Looking, for an operator who asks for one message ------------------------------------------------

    async def bodies(self) -> AsyncIterator[tuple[str, bytes]]:
        """Every message, some hundred a call."""
        async for number, stored in every_body(self.client, self.keys):
            yield number, _unpacked(stored)

    async def body(self, number: str) -> bytes | None:
        with translated():
            stored = await self.client.hget(self.keys.bodies, number)
        return _unpacked(stored) if stored is not None else None

    async def head_of(self, group: str) -> str | None:
        with translated():
            head: str | None = await self.client.lindex(await self._list_of(group), 0)
        return head

    async def place_in(self, group: str, number: str) -> tuple[int, str] | None:
        """How many stand before it in a group, and the first of them; None where it is not in that group."""
        with translated():
            listed = await self.client.lrange(await self._list_of(group), 0, -1)
        return (listed.index(number), listed[0]) if number in listed else None

    async def _list_of(self, group: str) -> str:
        generation = await self.client.hget(self.keys.state, "generation")
        return f"{self.keys.group_list}{generation or ''}{group}"

    async def standing(self, number: str) -> Standing:
        with translated():
            until_ms = await self.client.zscore(self.keys.hidden, number)
            count = await self.client.hget(self.keys.shown, number)
            ahead_ms = int(await self.client.hget(self.keys.state, "ahead") or 0)
        # Without a count it was shown once. A count of 0: delayed when it was sent; one that ends in .5: given back.
        shown = until_ms is not None and (count is None or float(count) >= 1) and not str(count).endswith(".5")
        # By Redis's clock, which may have been set back since: the queue's own time never is.
        return Standing(int(until_ms) - ahead_ms if until_ms else 0, shown)


def digest_of(dedup_id: str) -> str:
    """What is kept of a dedup id: five minutes of them are remembered, and theirs may be long."""
    if not dedup_id:
        return ""
    return b64encode(blake2b(dedup_id.encode("utf-8", "surrogatepass"), digest_size=15).digest()).decode()


# Redis hands us text. A body that is not text goes as base64: the first character tells the two apart.


def _packed(body: bytes) -> str:
    try:
        return "t" + body.decode()
    except UnicodeDecodeError:
        return "b" + b64encode(body).decode()


def _unpacked(stored: str) -> bytes:
    return stored[1:].encode() if stored[0] == "t" else b64decode(stored[1:])
