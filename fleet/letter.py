"""Dead letters as they are written: a message that was acked at its source and put aside, with all it takes to send it
again. A coordinator (`malformed`), a worker (`parked`) or an operator (`skipped`) puts it aside."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from fleet.message import MODE_OF

if TYPE_CHECKING:
    from fleet.state.entry import Entry

KINDS = ("malformed", "parked", "skipped")
BODY_BYTES = 16 * 1024
"""Kept of a body that is not a message: enough to see whose it is."""


def malformed(*, broker_id: str, queue: str, body: bytes, reason: str) -> str:
    content = {
        "brokerMessageId": broker_id,
        "queueId": queue,
        "reason": reason,
        "bodyBytes": len(body),
        "body": body[:BODY_BYTES].decode("utf-8", "replace"),
    }
    return _written(content)


def parked(entry: Entry, *, pool: str, reason: str) -> str:
    """The entry does not count the latest try yet."""
    return _put_aside("parked", entry, pool, reason, entry.tries + 1)


def skipped(entry: Entry, *, pool: str) -> str:
    return _put_aside("skipped", entry, pool, "skipped by an operator", entry.tries)


def _put_aside(kind: str, entry: Entry, pool: str, reason: str, tries: int) -> str:
    content: dict[str, Any] = {
        "kind": kind,
        "messageId": entry.message_id,
        "brokerMessageId": entry.broker_id,
        "queueId": entry.queue,
        "poolCode": pool,
        "messageGroupId": entry.group,
        "mediationTarget": entry.target,
        "authToken": entry.auth_token,
        "highPriority": entry.high_priority,
        "reason": reason,
        "tries": tries,
    }
    if entry.policy:
        content["dispatchMode"] = MODE_OF[entry.policy]
    return _written(content)


def _written(content: dict[str, Any]) -> str:
    return msgspec.json.encode({**content, "t": time.time_ns() // 1_000_000}).decode()
