"""Which attributes of a message a receive asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.broker.sqs import errors

SYSTEM = frozenset(
    {
        "SenderId",
        "SentTimestamp",
        "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp",
        "SequenceNumber",
        "MessageDeduplicationId",
        "MessageGroupId",
        "AWSTraceHeader",
        "DeadLetterQueueSourceArn",
    }
)


def system_attributes(params: Mapping[str, Any]) -> frozenset[str]:
    """Their names, of the parameter of today and of the older one; All is every one of them."""
    named: list[str] = [*params.get("MessageSystemAttributeNames", ()), *params.get("AttributeNames", ())]
    if "All" in named:
        return SYSTEM
    for name in named:
        if name not in SYSTEM:
            raise errors.unknown_attribute(name)
    return frozenset(named)


def message_attributes(names: Sequence[str], attributes: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Those that were asked for: by name, by `prefix.*`, or all of them by `All` and `.*`."""
    if not names or not attributes:
        return {}
    if "All" in names or ".*" in names:
        return dict(attributes)
    whole = set(names)
    prefixes = tuple(name.removesuffix(".*") for name in names if name.endswith(".*"))
    return {
        name: value for name, value in attributes.items() if name in whole or (prefixes and name.startswith(prefixes))
    }
