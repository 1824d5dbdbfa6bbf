"""NATS JetStream in the suite: a stream of its own for each queue."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from fleet.sources.base import Publisher, Source
from fleet.sources.open import open_publisher, open_source
from tests.servers.nats import NatsServer


class NatsKit:
    title: ClassVar[str] = "NATS JetStream"
    server: ClassVar[str] = "nats_server"
    holds_groups: ClassVar[bool] = False
    cannot: ClassVar[Mapping[str, str]] = {
        "a_handle_of_an_earlier_delivery_changes_nothing": (
            "the server takes the ack of any delivery for one of the message, and the ack wait is the consumer's: two "
            "connections cannot have different ones. A connection refuses the handles that it knows to be old"
        ),
        "a_held_group_holds_no_other": "it has no groups",
        "depth_tells_waiting_from_invisible": (
            "JetStream cannot delay a message that is published, which this fact needs; its own tests have the rest"
        ),
    }
    short_ms = 200

    def __init__(self, folder: Path, server: Any) -> None:
        assert isinstance(server, NatsServer)
        self.uri = server.uri(server.new_stream())

    def source(self, visibility_ms: int) -> Source:
        return open_source("conformance", self.uri, visibility_ms)

    def publisher(self) -> Publisher:
        return open_publisher(self.uri)
