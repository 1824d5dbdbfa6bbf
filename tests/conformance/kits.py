"""What the suite needs to know of a kind of queue. A new kind is a class, and a line in `KITS`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from fleet.broker.queue import MessageQueue
from fleet.sources.base import Publisher, Source, Surroundings
from fleet.sources.open import open_publisher, open_source
from tests.conformance.kit_activemq import ActiveMqKit
from tests.conformance.kit_door import DoorFifoKit, DoorStandardKit, NearFifoKit, NearStandardKit
from tests.conformance.kit_nats import NatsKit
from tests.conformance.kit_sqs import SqsFifoKit, SqsStandardKit
from tests.servers.local import RedisServer

_NO_DELAY = "a topic cannot delay a message when it is published; nacked with a delay it holds its group"


class Kit(Protocol):
    """One kind of queue; an object of it is one queue, new and empty, for one test."""

    title: ClassVar[str]
    """Its name in the table of docs/sources.md."""
    server: ClassVar[str]
    """The fixture that runs its server, '' where it has none."""
    holds_groups: ClassVar[bool]
    cannot: ClassVar[Mapping[str, str]]
    """Facts (names of tests) that this kind of queue cannot give → why, for the table. They are not run for it."""
    short_ms: int
    """The shortest visibility timeout or delay that the queue can do; the suite really waits for it."""
    uri: str

    def __init__(self, folder: Path, server: Any) -> None: ...

    def source(self, visibility_ms: int) -> Source:
        """A source, not open yet, of the queue."""

    def publisher(self) -> Publisher: ...


class SqliteKit:
    title: ClassVar[str] = "SQLite"
    server: ClassVar[str] = ""
    holds_groups: ClassVar[bool] = True
    cannot: ClassVar[Mapping[str, str]] = {}
    short_ms = 60

    def __init__(self, folder: Path, server: Any) -> None:
        self.uri = f"sqlite:///{folder}/queue.db?queue=conformance"

    def source(self, visibility_ms: int) -> Source:
        return open_source("conformance", self.uri, visibility_ms)

    def publisher(self) -> Publisher:
        return open_publisher(self.uri)


class OwnKit:
    title: ClassVar[str] = "our own"
    server: ClassVar[str] = "redis_server"
    holds_groups: ClassVar[bool] = True
    cannot: ClassVar[Mapping[str, str]] = {}
    short_ms = 60

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.uri = "fleet://conformance"
        self._around = Surroundings(redis_url=server.url)

    def source(self, visibility_ms: int) -> Source:
        return open_source("conformance", self.uri, visibility_ms, around=self._around)

    def publisher(self) -> Publisher:
        return open_publisher(self.uri, around=self._around)


class SubscriptionKit:
    title: ClassVar[str] = "subscription"
    server: ClassVar[str] = "redis_server"
    holds_groups: ClassVar[bool] = True
    cannot: ClassVar[Mapping[str, str]] = {
        "nothing_of_a_group_comes_while_an_older_message_is_delayed": _NO_DELAY,
        "a_repeated_dedup_id_is_accepted_and_comes_once": "a topic knows no dedup ids",
        "depth_tells_waiting_from_invisible": _NO_DELAY,
    }
    short_ms = 60

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.uri = "fleet://subscription/conformance"
        self._around = Surroundings(redis_url=server.url)
        with MessageQueue(url=server.url) as queue:
            queue.register_topic("conformance")
            queue.register_subscription("conformance", "conformance", message_ordering=True)

    def source(self, visibility_ms: int) -> Source:
        return open_source("conformance", self.uri, visibility_ms, around=self._around)

    def publisher(self) -> Publisher:
        return open_publisher("fleet://topic/conformance", around=self._around)


KITS: dict[str, type[Kit]] = {
    "sqlite": SqliteKit,
    "fleet": OwnKit,
    "subscription": SubscriptionKit,
    "sqs-fifo": SqsFifoKit,
    "sqs": SqsStandardKit,
    "nats": NatsKit,
    "activemq": ActiveMqKit,
    "door-fifo": DoorFifoKit,
    "door": DoorStandardKit,
    "near-fifo": NearFifoKit,
    "near": NearStandardKit,
}


def why_not(kit: type[Kit], fact: str, *, needs_groups: bool) -> str:
    """Why a kind of queue cannot give a fact; '' where it can."""
    if needs_groups and not kit.holds_groups:
        return "it has no groups"
    return kit.cannot.get(fact, "")
