"""A message as an SQS queue takes it: what it refuses, and how it carries what it has no field for. Without boto3."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from typing import Any

from fleet.sources.base import Outgoing, Unsent

GROUP_ATTRIBUTE = "Fleet-Group"
"""Carries the group on a standard queue, which has no groups of its own."""
OWN_GROUP = "fleet.none."
"""Begins the FIFO group of a message that was sent without one: FIFO requires a group, so each gets its own."""
MAX_DELAY_S = 900
_NAME = re.compile(r"[!-~]{1,128}")
"""What a FIFO queue takes as a group or a dedup id."""
HELD_UP = Unsent("not sent: an earlier message of its group was not accepted")
_NO_TEXT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What SQS says about a queue when it is opened."""

    is_fifo: bool
    most_bytes: int


def refusal(message: Outgoing, facts: QueueFacts) -> str | None:
    """Why SQS cannot take a message; None if it can."""
    try:
        text = message.body.decode()
    except UnicodeDecodeError:
        return "SQS takes text only, and the body is not UTF-8"
    if not text:
        return "SQS does not take an empty body"
    if _NO_TEXT.search(text):
        return "the body holds a character that SQS does not take"
    if size_bytes(message) > facts.most_bytes:
        return f"{size_bytes(message)} bytes are more than the {facts.most_bytes} that the queue takes"
    if message.delay_ms < 0:
        return "delay is negative"
    if facts.is_fifo:
        if message.delay_ms:
            return "a FIFO queue of SQS cannot delay a single message"
        if message.group and not _NAME.fullmatch(message.group):
            return "a FIFO group of SQS is 1 to 128 letters, digits and punctuation of ASCII, no spaces"
        if message.group and message.group.startswith(OWN_GROUP):
            return f"a group named {OWN_GROUP}… stands for no group"
        return None
    if message.group and _NO_TEXT.search(message.group):
        return "the group holds a character that SQS does not take"
    if message.delay_ms > MAX_DELAY_S * 1000:
        return f"SQS delays a message by {MAX_DELAY_S} s at most"
    return None


def entry_of(message: Outgoing, facts: QueueFacts) -> dict[str, Any]:
    entry: dict[str, Any] = {"MessageBody": message.body.decode()}
    if facts.is_fifo:
        asked = message.dedup_id or message.id
        digest = hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()
        entry["MessageDeduplicationId"] = asked if _NAME.fullmatch(asked) else digest
        # The same for the same message: some queues look for repeated ids within a group only.
        entry["MessageGroupId"] = message.group or OWN_GROUP + digest
        return entry
    if message.group:
        entry["MessageAttributes"] = {GROUP_ATTRIBUTE: {"DataType": "String", "StringValue": message.group}}
    if message.delay_ms:
        entry["DelaySeconds"] = math.ceil(message.delay_ms / 1000)
    return entry


def size_bytes(message: Outgoing) -> int:
    """The bytes that SQS counts, including a group as a standard queue carries it."""
    group = len(GROUP_ATTRIBUTE) + len("String") + len(message.group.encode("utf-8", "replace")) if message.group else 0
    return len(message.body) + group
