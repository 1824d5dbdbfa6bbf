"""ActiveMQ in the suite of what every queue must do."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from fleet.sources.base import Publisher, Source
from fleet.sources.open import open_publisher, open_source

_NO_TIMEOUT = "it has no visibility timeout: a message is its connection's until that ends, and then comes again"
_NO_GROUPS = "it holds no group: the next of a group comes while an older one is out"
_NO_DEDUP = "it knows no id of ours to tell a repeated message by"
_numbers = count(1)


class ActiveMqKit:
    title: ClassVar[str] = "ActiveMQ"
    server: ClassVar[str] = "activemq_server"
    holds_groups: ClassVar[bool] = False
    cannot: ClassVar[Mapping[str, str]] = {
        "a_lapsed_lease_shows_the_message_again_under_the_same_id_with_a_new_handle": _NO_TIMEOUT,
        "a_handle_of_an_earlier_delivery_changes_nothing": _NO_TIMEOUT,
        "what_was_sent_and_leased_outlives_the_connection": _NO_TIMEOUT,
        "a_held_group_holds_no_other": _NO_GROUPS,
        "a_repeated_dedup_id_is_accepted_and_comes_once": _NO_DEDUP,
    }
    short_ms = 100

    def __init__(self, folder: Path, server: Any) -> None:
        # The broker is shared by the session: a queue for each test.
        self.uri = server.uri(f"conformance.{next(_numbers)}")

    def source(self, visibility_ms: int) -> Source:
        return open_source("conformance", self.uri, visibility_ms)

    def publisher(self) -> Publisher:
        return open_publisher(self.uri)
