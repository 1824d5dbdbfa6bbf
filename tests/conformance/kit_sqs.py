"""SQS for the suite, on moto. A fact that only moto cannot give says so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from fleet.clock import SystemClock
from fleet.sources.base import Publisher, Source
from fleet.sources.open import open_publisher
from fleet.sources.sqs.address import parse_address
from fleet.sources.sqs.source import SqsSource
from tests.servers.moto import MotoServer
from tests.servers.sqs_door import SqsDoor

TEXT_ONLY = "SQS takes text only: a body that is not UTF-8 is refused"
NO_DELAY_OF_ONE = (
    "a FIFO queue of SQS cannot delay a single message when it is sent; nacked with a delay it holds its group"
)
STANDARD_CANNOT: Mapping[str, str] = {
    "messages_come_as_they_were_sent": TEXT_ONLY,
    "a_held_group_holds_no_other": "a standard queue of SQS holds no group: the rest of this one comes too",
    "the_tail_of_a_group_that_waits_in_place_is_not_overtaken": "a standard queue of SQS shows nothing in order",
    "a_repeated_dedup_id_is_accepted_and_comes_once": "a standard queue of SQS knows no dedup ids",
}
_LAPSES = "what lapses together moto shows in any order; AWS oldest first, as the strict responder does"


class SqsFifoKit:
    title: ClassVar[str] = "SQS FIFO"
    server: ClassVar[str] = "moto_server"
    holds_groups: ClassVar[bool] = True
    cannot: ClassVar[Mapping[str, str]] = {
        "messages_come_as_they_were_sent": TEXT_ONLY,
        "nothing_of_a_group_comes_while_an_older_message_is_delayed": NO_DELAY_OF_ONE,
        "depth_tells_waiting_from_invisible": NO_DELAY_OF_ONE,
        "an_invisible_message_in_the_middle_ends_what_a_group_gives": (
            "SQS FIFO holds a whole group while any message of it is invisible, older ones too"
        ),
        "a_handle_of_an_earlier_delivery_changes_nothing": (
            "moto takes a handle that expired; AWS refuses it on a FIFO queue, as the strict responder does"
        ),
        "what_lapsed_in_the_pool_is_not_overtaken_by_what_came_after_it": _LAPSES,
        "what_comes_while_the_head_of_its_group_fails_waits_for_it": _LAPSES,
        "the_tail_of_a_group_that_waits_in_place_is_not_overtaken": (
            "moto shows newer messages beside nacked ones of their group; AWS does not, nor does the strict responder"
        ),
    }
    short_ms = 1000
    fifo: ClassVar[bool] = True
    long_poll_s: ClassVar[int] = 1
    """One of moto does not see a group being freed; AWS's does. The next one does."""

    def __init__(self, folder: Path, server: MotoServer | SqsDoor) -> None:
        self.uri = server.make_queue(fifo=self.fifo)

    def source(self, visibility_ms: int) -> Source:
        return SqsSource(
            name="conformance",
            address=parse_address(self.uri),
            visibility_ms=visibility_ms,
            connections=1,
            clock=SystemClock(),
            long_poll_s=self.long_poll_s,
        )

    def publisher(self) -> Publisher:
        return open_publisher(self.uri)


class SqsStandardKit(SqsFifoKit):
    title: ClassVar[str] = "SQS standard"
    holds_groups: ClassVar[bool] = False
    cannot: ClassVar[Mapping[str, str]] = {
        **STANDARD_CANNOT,
        "a_handle_of_an_earlier_delivery_changes_nothing": (
            "a standard queue of SQS answers yes to an older handle (moto acts on it too); what this source itself "
            "was given again it knows"
        ),
    }
    fifo: ClassVar[bool] = False
