"""A queue of our own, in Redis: groups held as SQS FIFO holds them, judged by the clock of Redis alone.

A message is known by its number, which rises and is never used again. A showing of it is known by that number and how
often the message was shown. One typed wrapper per script; `fleet/sources/own/source.py` makes a source of it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from fleet.errors import Fenced
from fleet.state.connect import Client, translated
from fleet.state.keys import OwnQueueKeys
from fleet.state.scripts import script

DEDUP_MS = 5 * 60 * 1000
PER_LANE = 16
"""Messages of one group in one receive, if there are many groups: others get their turn, and a call brings more than
one message of each."""
_PURGE_AT_ONCE = 5000
_LOOK = 100


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
        self.now_ms = now_ms

    async def send(
        self, messages: Sequence[NewMessage], *, dedup_ms: int = DEDUP_MS, producer: str = "", epoch: int = 0
    ) -> list[str]:
        """Append in order, all or nothing. Returns the number of each, '' if its dedup id was seen before.

        A `producer` that others may replace sends with its epoch: once a newer one has sent, it is refused.
        """
        arguments: list[str | int] = [self.now_ms, dedup_ms, producer, epoch]
        for message in messages:
            arguments += (message.group, message.dedup_id, message.delay_ms, _packed(message.body))
        s = script("send")
        answer = await s(self.client, s.keys_of(self.keys), arguments)
        if answer[0] == "stale":
            raise Fenced(f"{producer} sends to {self.name} with a newer epoch now")
        return ["" if number == "0" else str(number) for number in answer[1:]]

    async def receive(self, most: int, *, visibility_ms: int) -> tuple[list[Shown], int | None]:
        """The oldest messages that may be shown. If there are none, after how many ms one may be, or None for never."""
        s = script("receive")
        answer = await s(self.client, s.keys_of(self.keys), [self.now_ms, most, visibility_ms, PER_LANE])
        shown = [
            Shown(answer[i], answer[i + 1], int(answer[i + 2]), _unpacked(answer[i + 3]))
            for i in range(1, len(answer), 4)
        ]
        return shown, int(answer[0]) if answer[0] else None

    async def conclude(self, conclusions: Sequence[Conclusion]) -> list[bool]:
        """Delete, show again or hide longer. False for what was shown again since."""
        arguments: list[str | int] = [self.now_ms]
        for c in conclusions:
            arguments += (c.number, c.count, c.group, "d" if c.what == "delete" else f"{c.what[0]}{c.ms}")
        s = script("conclude")
        return [bool(flag) for flag in await s(self.client, s.keys_of(self.keys), arguments)]

    async def contents(self, *, look: int = _LOOK) -> Contents:
        s = script("depth")
        messages, hidden, age_ms, whole = await s(self.client, s.keys_of(self.keys), [self.now_ms, look])
        return Contents(messages, hidden, int(age_ms), bool(whole))

    # Looking, for an operator who asks for one message ------------------------------------------------

    async def bodies(self) -> AsyncIterator[tuple[str, bytes]]:
        """Every message, some hundred a call."""
        cursor = 0
        while True:
            with translated():
                cursor, page = await self.client.hscan(self.keys.bodies, cursor, count=200)
            for number, stored in page.items():
                yield number, _unpacked(stored)
            if not cursor:
                return

    async def body(self, number: str) -> bytes | None:
        with translated():
            stored = await self.client.hget(self.keys.bodies, number)
        return _unpacked(stored) if stored is not None else None

    async def head_of(self, group: str) -> str | None:
        with translated():
            head: str | None = await self.client.lindex(self.keys.group_list + group, 0)
        return head

    async def place_in(self, group: str, number: str) -> tuple[int, str] | None:
        """How many stand before it in a group, and the first of them; None where it is not in that group."""
        with translated():
            listed = await self.client.lrange(self.keys.group_list + group, 0, -1)
        return (listed.index(number), listed[0]) if number in listed else None

    async def standing(self, number: str) -> Standing:
        with translated():
            until_ms = await self.client.zscore(self.keys.hidden, number)
            count = await self.client.hget(self.keys.counts, number)
            ahead_ms = int(await self.client.hget(self.keys.state, "ahead") or 0)
        # Without a count it was shown once. A count of 0: delayed when it was sent; one that ends in .5: given back.
        shown = until_ms is not None and (count is None or float(count) >= 1) and not str(count).endswith(".5")
        # By Redis's clock, which may have been set back since: the queue's own time never is.
        return Standing(int(until_ms) - ahead_ms if until_ms else 0, shown)

    async def purge(self) -> int:
        """Throw away the messages that are there now, shown or not, some thousand a call. Returns how many.

        What is sent meanwhile has a higher number, and stays.
        """
        with translated():
            bound = await self.client.hget(self.keys.state, "last")
        gone = 0
        # A lane may go from one set to the other behind our back: look through all of them until nothing is found.
        while bound and (found := await self._purge_once(bound)):
            gone += found
        return gone

    async def _purge_once(self, bound: str) -> int:
        gone = 0
        for lanes in (self.keys.ready, self.keys.due, self.keys.ready):
            cursor = 0
            while True:
                with translated():
                    cursor, page = await self.client.zscan(lanes, cursor, count=200)
                # A lane that is ready stands there under the number of its first message.
                gone += await self._purge_lanes(
                    bound, [lane for lane, score in page if lanes == self.keys.due or score <= float(bound)]
                )
                if not cursor:
                    break
        return gone

    async def _purge_lanes(self, bound: str, lanes: list[str]) -> int:
        s = script("purge")
        gone = 0
        while lanes:
            found = await s(self.client, s.keys_of(self.keys), [self.now_ms, bound, _PURGE_AT_ONCE, *lanes])
            gone += found
            if found < _PURGE_AT_ONCE:
                break
        return gone


# Redis hands us text. A body that is not text goes as base64: the first character tells the two apart.


def _packed(body: bytes) -> str:
    try:
        return "t" + body.decode()
    except UnicodeDecodeError:
        return "b" + b64encode(body).decode()


def _unpacked(stored: str) -> bytes:
    return stored[1:].encode() if stored[0] == "t" else b64decode(stored[1:])
