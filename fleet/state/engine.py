"""Messages of our own in Redis: one engine under queues of the router, queues of the SQS door, and subscriptions.

A message is known by its number, which rises and is never used again. A showing of it is known by that number and how
often the message was shown. One typed wrapper per script of `lua/own/`; a body is the text that the caller stores.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from fleet.errors import Fenced, StateError
from fleet.state.connect import Client, translated
from fleet.state.keys import MessageKeys, OwnQueueKeys
from fleet.state.scan import pages
from fleet.state.scripts import SEP, script

DEDUP_MS = 5 * 60 * 1000
PER_LANE = 16
"""Messages of one group in one receive, if there are many groups: others get their turn, and a call brings more than
one message of each."""
LOOK = 100
_CLEAR_AT_ONCE = 1000
_TIDY_AT_ONCE = 500
_LAST_PLACE = 2**53 - 1

Kind = Literal["f", "s", "o", "t"]
"""Of the router; standard or ordered, of the SQS door; a subscription."""


class Stale(StateError):
    """The caller knows less of the queue than others did before: it has changed, or is another one now."""


class Ahead(StateError):
    """The caller knows more of the queue than what is there: `establish` lets it know."""


class New(NamedTuple):
    stored: str
    group: str = ""
    dedup_id: str = ""
    delay_ms: int = 0


class Sent(NamedTuple):
    number: int
    is_new: bool
    """Or the number is of the message that brought its dedup id before."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How messages are shown: what is 0 or empty does not apply."""

    visibility_ms: int
    per_lane: int = PER_LANE
    retention_ms: int = 0
    max_count: int = 0
    target: str = ""
    delay_ms: int = 0
    max_out: int = 0
    max_bytes: int = 0
    backoff_ms: int = 0
    most_backoff_ms: int = 0


class Showing(NamedTuple):
    """One showing of a message."""

    number: str
    group: str
    times: int
    """How often it was shown by then."""
    first_ms: int
    """When it was first shown. The router's queues do not keep it."""
    origin: str
    """The queue that it was moved from."""
    stored: str


@dataclass(frozen=True, slots=True)
class Taking:
    showings: Sequence[Showing]
    due_ms: int | None
    """If there are none: after how many ms there may be, or None for never."""
    moved: int = 0
    dropped: int = 0
    is_over: bool = False
    """As many are out as may be."""


class Verdict(NamedTuple):
    """What becomes of a showing. `what`: as lua/own/conclude.lua has it."""

    number: str
    times: int | str
    group: str
    what: str


DONE, SHOWN_AGAIN, GONE, LAPSED = 1, 0, -1, -2
"""What comes of a verdict."""


@dataclass(frozen=True, slots=True)
class Depths:
    messages: int
    hidden: int
    delayed: int
    moving: int
    oldest_ms: int
    is_whole: bool
    """Whether the oldest of all was found: of many that wait, only some are looked at."""
    bytes: int
    out: int
    out_bytes: int


class Moving(NamedTuple):
    """A message in an outbox."""

    place: int
    number: str
    times: int
    """How often it was shown; -1 if `move` was asked for it."""
    first_ms: int
    group: str
    stored: str


@dataclass(frozen=True, slots=True)
class Charged:
    tokens: float
    wait_ms: Sequence[float]
    """Of each who asked: 0 if it was served, else in how many ms there would be enough for it."""


class Engine:
    """`incarnation`, `version`: what the caller knows of it, 0 for one that has neither. `now_ms` is for tests."""

    def __init__(
        self,
        client: Client,
        keys: MessageKeys,
        *,
        kind: Kind,
        incarnation: int = 0,
        version: int = 0,
        now_ms: str = "",
    ) -> None:
        self.client = client
        self.keys = keys
        self.prefix = keys.prefix
        self.kind: Kind = kind
        self.incarnation = incarnation
        self.version = version
        self.now_ms = now_ms

    async def send(
        self, messages: Sequence[New], *, dedup_ms: int = DEDUP_MS, producer: str = "", epoch: int = 0
    ) -> list[Sent]:
        """Append in order, all or nothing.

        A `producer` that others may replace sends with its epoch: once a newer one has sent, it is refused.
        """
        arguments: list[str | int] = [*self._known(), self.kind, dedup_ms, producer, epoch]
        for message in messages:
            arguments += (message.group, message.dedup_id, message.delay_ms, message.stored)
        answer = self._checked(await self._call("own/send", arguments))
        if answer[0] == "fenced":
            raise Fenced(f"{producer} sends to {self.prefix} with a newer epoch now")
        return [Sent(abs(int(number)), number[0] != "-") for number in answer[1:]]

    async def tidy(self, rules: Rules) -> Taking:
        """Show nothing; what is too old is dropped, and what was shown too often moves."""
        moved = dropped = place = 0
        # As nothing is shown, a group is looked at as far as it goes.
        rules = replace(rules, per_lane=_TIDY_AT_ONCE)
        while True:
            answer = await self._receive(_TIDY_AT_ONCE, rules, place)
            moved, dropped = moved + answer[2], dropped + answer[3]
            # One look takes only so much of a group: what went may have stood before more of the same.
            if not answer[2] + answer[3]:
                if answer[0] == "end":
                    return Taking((), None, moved, dropped)
                place += int(answer[1])

    async def receive(self, most: int, rules: Rules) -> Taking:
        """Show the oldest messages that may be shown."""
        answer = await self._receive(most, rules)
        showings = _showings(answer, 4)
        due_ms = int(answer[1]) if answer[1] else None
        return Taking(showings, due_ms, answer[2], answer[3], answer[0] == "over")

    async def _receive(
        self, most: int, rules: Rules, place: int | Literal[""] = "", known: Sequence[str] = ()
    ) -> list[Any]:
        arguments: list[str | int] = [
            *self._known(),
            self.kind,
            most,
            rules.visibility_ms,
            rules.per_lane,
            rules.retention_ms,
            rules.max_count,
            rules.target,
            rules.delay_ms,
            rules.max_out,
            rules.max_bytes,
            rules.backoff_ms,
            rules.most_backoff_ms,
            place,
            *known,
        ]
        return self._checked(await self._call("own/receive", arguments))

    async def conclude(self, verdicts: Sequence[Verdict]) -> list[int]:
        """Delete, show again, hide longer or have moved. What came of each: DONE, SHOWN_AGAIN, GONE or LAPSED."""
        arguments: list[str | int] = [*self._known(), self.kind]
        for verdict in verdicts:
            arguments += verdict
        results: list[int] = self._checked(await self._call("own/conclude", arguments))[1:]
        return results

    async def depths(self, *, look: int = LOOK) -> Depths:
        answer = await self._call("own/depth", [self.now_ms, self.kind, look])
        messages, hidden, delayed, moving, age_ms, whole, size, out, out_bytes = answer
        return Depths(messages, hidden, delayed, moving, int(age_ms), bool(whole), size, out, out_bytes)

    async def seek(self, number: int) -> int:
        """Throw away what a subscription got before that number. Returns how many."""
        gone: int = self._checked(await self._call("own/seek", [*self._known(), self.kind, number]))[1]
        return gone

    async def purge(self, purge: str = "") -> int:
        """Throw away all messages at once, and clear what that leaves. Returns how many.

        `purge`: which one it is: several may finish it, and what is sent once it is done stays.
        """
        gone: int = self._checked(await self._call("own/purge", [*self._known(), self.kind, purge]))[1]
        await self.clear()
        return gone

    async def clear(self) -> None:
        """Clear what emptying it left behind, some thousand lanes a call; another may go on with it."""
        while await self._call("own/clear", [self.kind, _CLEAR_AT_ONCE]):
            pass

    async def establish(self, *, keep_ms: int | None = None, delay_ms: int | None = None) -> None:
        """Let it know our incarnation and version: who knows less is refused from here on.

        `keep_ms`: it was deleted, and is remembered for as long. `delay_ms`: of an ordered queue, which holds for what
        is there too.
        """
        arguments = [
            *self._known(),
            self.kind,
            "" if keep_ms is None else keep_ms,
            "" if delay_ms is None else delay_ms,
        ]
        if await self._call("own/establish", arguments) == "stale":
            raise Stale(self.prefix)

    async def known(self) -> tuple[int, int]:
        """The incarnation and version that it was told last."""
        with translated():
            found = await self.client.hmget(self.keys.state, ["incarnation", "version"])
        return int(found[0] or 0), int(found[1] or 0)

    async def note_attempt(self, attempt: str, showings: Sequence[Showing], note: str, *, keep_ms: int) -> None:
        """Remember what an attempt was given, so that it may ask for the same again."""
        given = [part for one in showings for part in (one.number, one.group, note)]
        self._checked(await self._attempt(attempt, 0, keep_ms, given))

    async def again(self, attempt: str, *, visibility_ms: int | None) -> list[tuple[Showing, str]]:
        """What it was given before, and noted with it, hidden for as long from now; nothing if something has become of
        it. None: only look."""
        answer = self._checked(await self._attempt(attempt, "" if visibility_ms is None else visibility_ms, 0, ()))
        if answer[0] == "void":
            return []
        return [(_showing(answer, i), answer[i + 4]) for i in range(1, len(answer), 5)]

    async def _attempt(
        self, attempt: str, visibility_ms: int | Literal[""], keep_ms: int, given: Sequence[str]
    ) -> list[Any]:
        arguments = [*self._known(), visibility_ms, keep_ms, *given]
        found: list[Any] = await self._call("own/again", arguments, attempt=attempt)
        return found

    async def charge(
        self, bucket: str, asked: Sequence[int], *, capacity: float, refill: float, idle_ms: int
    ) -> Charged:
        """Take tokens, each whole or not at all, in order."""
        arguments: list[str | int] = [*self._known(), repr(capacity), repr(refill), idle_ms, *asked]
        _, tokens, *waits = self._checked(await self._call("own/charge", arguments, bucket=bucket))
        return Charged(float(tokens), [float(wait) for wait in waits])

    async def tokens(self, bucket: str, *, capacity: float, refill: float, now_ms: int) -> float:
        """What a bucket holds by then, without asking for any."""
        assert isinstance(self.keys, OwnQueueKeys)
        with translated():
            found = await self.client.hmget(self.keys.bucket + bucket, ["figures", "tokens", "at_ms"])
        if found[0] != f"{self.incarnation} {capacity!r} {refill!r}":
            return capacity  # as `charge` will have it: nobody has asked yet, or since its figures changed
        return min(capacity, float(found[1]) + max(0, now_ms - int(found[2])) / 1000 * refill)

    async def move(
        self, most: int, target: str, place: int, known: Sequence[str]
    ) -> tuple[int, int | None, Sequence[str]]:
        """Have up to `most` that may be shown go to `target`, or if that is '' where each came from.

        Looks from `place` on. Returns how many go, from which place on to look next if none did (None: there is nothing
        behind), and which queues were met that are not `known`: what would go there stays.
        """
        answer = await self._receive(most, Rules(0, max_count=-1, target=target), place, known)
        return answer[2], None if answer[0] == "end" else place + int(answer[1]), answer[4:]

    # What moves to another queue ----------------------------------------------------------------------

    async def targets(self) -> set[str]:
        with translated():
            return set(await self.client.smembers(self.keys.outboxes))

    async def outgoing(self, target: str, most: int) -> list[Moving]:
        with translated():
            records = await self.client.lrange(self.keys.outbox + target, 0, most - 1)
        return [_moving(record) for record in records]

    async def arrive(self, moving: Sequence[tuple[int, int | str, str, str]], *, source: str, origin: str = "") -> int:
        """Take in (place, number, group, stored) of another's outbox. What came before is not taken again.

        A message of a queue without order keeps its number, and so its age; 0 makes it a new one.
        """
        arguments: list[str | int] = [*self._known(), self.kind, source, origin]
        for one in moving:
            arguments += one
        taken: int = self._checked(await self._call("own/arrive", arguments))[1]
        return taken

    async def leave(self, target: str, place: int) -> int:
        """Forget what has arrived there, up to that place. Returns how many are left."""
        left: int = await self._call("own/leave", [target, place])
        return left

    async def forget_outboxes(self) -> None:
        """What has not arrived is not sent any more."""
        for target in await self.targets():
            await self.leave(target, _LAST_PLACE)

    # ---------------------------------------------------------------------------------------------------

    def _known(self) -> tuple[str, int | str, int]:
        return self.now_ms, self.incarnation or "", self.version

    async def _call(self, name: str, arguments: Sequence[str | int], **ends: str) -> Any:
        """`ends`: what stands behind a key that is a prefix."""
        s = script(name)
        keys: Sequence[str] = s.keys_of(self.keys)
        if ends:
            keys = [key + ends.get(name, "") for name, key in zip(s.keys, keys, strict=True)]
        return await s(self.client, keys, arguments)

    def _checked(self, answer: list[Any]) -> list[Any]:
        return checked(answer, self.prefix)


def checked(answer: list[Any], prefix: str) -> list[Any]:
    """What a script answered, unless it refused its caller."""
    if answer[0] == "stale":
        raise Stale(f"{prefix} has changed")
    if answer[0] == "ahead":
        raise Ahead(f"{prefix} is not established")
    return answer


def _showings(answer: list[Any], begin: int) -> list[Showing]:
    return [_showing(answer, i) for i in range(begin, len(answer), 4)]


def _showing(answer: list[Any], i: int) -> Showing:
    count, _, rest = answer[i + 2].partition(SEP)
    first_ms, _, origin = rest.partition(SEP)
    return Showing(answer[i], answer[i + 1], int(count), int(first_ms or 0), origin, answer[i + 3])


def _moving(record: str) -> Moving:
    place, number, count, first_ms, group, stored = record.split(SEP, 5)
    return Moving(int(place), number, int(count), int(first_ms or 0), group, stored)


async def every_body(client: Client, keys: MessageKeys) -> AsyncIterator[tuple[str, str]]:
    """Every message, some hundred a call."""
    async for page in pages(client.hscan, keys.bodies, count=200):
        for number, stored in page.items():
            yield number, stored
