"""A topic: what is published to it goes to its subscriptions in one call, all or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fleet.errors import StateError
from fleet.state.connect import Client
from fleet.state.engine import Engine, checked
from fleet.state.keys import SubscriptionKeys, TopicKeys, tag_of
from fleet.state.scripts import SEP, script

MOST_HELD = 10_000
MOST_BYTES = 100_000_000
"""What a subscription holds at most: what is published then is not for it."""


class Full(StateError):
    """A subscription holds as much as it may."""


class Copies(NamedTuple):
    """A message, and who gets it: places in the list of subscriptions, and whether in its group."""

    stored: str
    group: str
    to: Iterable[tuple[int, bool]]
    place: int = 0
    """In the outbox that it comes from."""


@dataclass(frozen=True, slots=True)
class Published:
    numbers: Sequence[int]
    full: Mapping[str, int]
    """Subscriptions that could not hold all of it, and how many they did not get."""


class Topic:
    """`incarnation`, `version`: what the caller knows of it and of who subscribes. `now_ms` is for tests."""

    def __init__(self, client: Client, name: str, *, incarnation: int, version: int, now_ms: str = "") -> None:
        self.client = client
        self.keys = TopicKeys(name)
        self.name = name
        self.incarnation = incarnation
        self.version = version
        self.now_ms = now_ms

    async def publish(
        self,
        messages: Sequence[Copies],
        subscriptions: Sequence[str],
        *,
        most: int = MOST_HELD,
        most_bytes: int = MOST_BYTES,
        source: str = "",
    ) -> Published:
        """`source`: whose outbox it comes from. Then all of it is for everybody or Full is raised, and 0 stands for the
        number of what has come already."""
        held = "".join(f"{tag_of(name)}{SEP}" for name in subscriptions)
        arguments: list[str | int] = [self.now_ms, self.incarnation, self.version, most, most_bytes, source, held]
        for message in messages:
            to = "".join(f"{'' if in_group else '-'}{place + 1}," for place, in_group in message.to)
            arguments += (message.place, message.group, to, message.stored)
        s = script("own/publish")
        answer = checked(await s(self.client, s.keys_of(self.keys), arguments), self.keys.prefix)
        if answer[0] == "full":
            raise Full(f"a subscription of {self.name} holds as much as it may")
        numbers = [int(number) for number in answer[1 : 1 + len(messages)]]
        full = zip(subscriptions, answer[1 + len(messages) :], strict=True)
        return Published(numbers, {name: count for name, count in full if count})

    async def establish(self, *, keep_ms: int | None = None) -> None:
        """Let it know who subscribes: a publisher that knows of others is refused from here on."""
        await self._engine().establish(keep_ms=keep_ms)

    def subscription(self, name: str, *, incarnation: int, version: int) -> Engine:
        keys = SubscriptionKeys(self.name, name)
        return Engine(self.client, keys, kind="t", incarnation=incarnation, version=version, now_ms=self.now_ms)

    def _engine(self) -> Engine:
        return Engine(
            self.client, self.keys, kind="t", incarnation=self.incarnation, version=self.version, now_ms=self.now_ms
        )
