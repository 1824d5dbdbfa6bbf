"""What makes a batch fail as a whole: how many entries, their ids, and how much they weigh together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fleet.broker.sqs import errors, message
from fleet.broker.sqs.attributes import MOST_BYTES, Attributes
from fleet.broker.sqs.shapes import entry_name

MOST_ENTRIES = 10
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}\Z")
_SHORT = MOST_BYTES // MOST_ENTRIES // 4
"""Characters, of at most four bytes each."""
Entries = Sequence[Mapping[str, Any]]


def check(verb: str, params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries; SqsError for none, for too many, and for ids that are not good or not distinct."""
    entries: list[dict[str, Any]] = params.get("Entries") or []
    if not entries:
        raise errors.empty_batch(entry_name(verb))
    if len(entries) > MOST_ENTRIES:
        raise errors.too_many_entries(len(entries))
    seen: set[str] = set()
    for number, entry in enumerate(entries, 1):
        id_ = entry.get("Id")
        if id_ is None:
            raise errors.missing_parameter(f"{entry_name(verb)}.{number}.Id")
        if _ID.match(id_) is None:
            raise errors.invalid_batch_id()
        if id_ in seen:
            raise errors.batch_id_repeated(id_)
        seen.add(id_)
    return entries


def check_sent(entries: Entries, queue: Attributes) -> None:
    """For SendMessageBatch: SqsError over 1 MiB together, and where a FIFO queue misses an id."""
    if any(map(_may_be_long, entries)):
        sent = sum(message.size_bytes(entry) for entry in entries)
        if sent > MOST_BYTES:
            raise errors.batch_too_long(sent, MOST_BYTES)
    if queue.fifo:
        for entry in entries:
            message.check_fifo_ids(entry, queue, single=False)


def _may_be_long(entry: Mapping[str, Any]) -> bool:
    """Whether ten like it could weigh too much: to weigh each, its text has to be encoded."""
    return "MessageAttributes" in entry or len(entry.get("MessageBody", "")) > _SHORT
