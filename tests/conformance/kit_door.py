"""Our own SQS door for the suite: by HTTP, as the SQS adapter reads it, and in Redis, where its queues stand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from fleet.sources.base import Publisher, Source, Surroundings
from fleet.sources.open import open_publisher, open_source
from fleet.sources.sqs.source import LONG_POLL_S
from tests.conformance.kit_sqs import NO_DELAY_OF_ONE, STANDARD_CANNOT, TEXT_ONLY, SqsFifoKit
from tests.servers.sqs_door import SqsDoor

_OLD_HANDLE = "a_handle_of_an_earlier_delivery_changes_nothing"
_ACTS = "a standard queue of SQS acts on an older handle too"
_KNOWS = "what this source itself was given again it knows"


class DoorFifoKit(SqsFifoKit):
    title: ClassVar[str] = "our SQS door, FIFO"
    server: ClassVar[str] = "sqs_door"
    cannot: ClassVar[Mapping[str, str]] = {
        "messages_come_as_they_were_sent": TEXT_ONLY,
        "nothing_of_a_group_comes_while_an_older_message_is_delayed": NO_DELAY_OF_ONE,
        "depth_tells_waiting_from_invisible": NO_DELAY_OF_ONE,
    }
    long_poll_s: ClassVar[int] = LONG_POLL_S
    """As long as it is: the door wakes it."""


class DoorStandardKit(DoorFifoKit):
    title: ClassVar[str] = "our SQS door, standard"
    holds_groups: ClassVar[bool] = False
    cannot: ClassVar[Mapping[str, str]] = {**STANDARD_CANNOT, _OLD_HANDLE: f"{_ACTS}; {_KNOWS}"}
    fifo: ClassVar[bool] = False


class NearFifoKit:
    """Without HTTP: the door only makes the queue."""

    title: ClassVar[str] = "`fleet://sqs/`, FIFO"
    server: ClassVar[str] = "sqs_door"
    holds_groups: ClassVar[bool] = True
    cannot: ClassVar[Mapping[str, str]] = DoorFifoKit.cannot
    short_ms = 60
    fifo: ClassVar[bool] = True

    def __init__(self, folder: Path, server: SqsDoor) -> None:
        self.uri = f"fleet://sqs/{server.make_queue(fifo=self.fifo).rpartition('/')[2]}"
        self._around = Surroundings(redis_url=server.redis_url)

    def source(self, visibility_ms: int) -> Source:
        return open_source("conformance", self.uri, visibility_ms, around=self._around)

    def publisher(self) -> Publisher:
        return open_publisher(self.uri, around=self._around)


class NearStandardKit(NearFifoKit):
    title: ClassVar[str] = "`fleet://sqs/`, standard"
    holds_groups: ClassVar[bool] = False
    cannot: ClassVar[Mapping[str, str]] = {**STANDARD_CANNOT, _OLD_HANDLE: _ACTS}
    fifo: ClassVar[bool] = False
