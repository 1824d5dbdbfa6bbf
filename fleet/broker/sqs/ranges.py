"""The whole numbers that a call may carry, and between what they must be. An explicit 0 is a value, not an absence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.broker.sqs import errors
from fleet.broker.sqs.attributes import MOST_DELAY_S, MOST_VISIBILITY_S, MOST_WAIT_S

MOST_MESSAGES = 10
MOST_RESULTS = 1000
MOST_TASKS = 10
MOST_MOVED_A_SECOND = 500


def messages(params: Mapping[str, Any]) -> int:
    """How many a receive may bring."""
    found = params.get("MaxNumberOfMessages", 1)
    if not 1 <= found <= MOST_MESSAGES:
        reason = f"Must be between 1 and {MOST_MESSAGES}, if provided."
        raise errors.invalid_value(found, "MaxNumberOfMessages", reason)
    return int(found)


def wait_s(params: Mapping[str, Any], default: int) -> int:
    return _at_most(params, "WaitTimeSeconds", default, MOST_WAIT_S)


def visibility_s(params: Mapping[str, Any], default: int) -> int:
    """Of a receive."""
    return _at_most(params, "VisibilityTimeout", default, MOST_VISIBILITY_S)


def changed_visibility_s(params: Mapping[str, Any]) -> int:
    """Of ChangeMessageVisibility, and of an entry of its batch."""
    found = params.get("VisibilityTimeout")
    if found is None:
        raise errors.missing_parameter("VisibilityTimeout")
    if not 0 <= found <= MOST_VISIBILITY_S:
        reason = f"VisibilityTimeout must be an integer between 0 and {MOST_VISIBILITY_S}."
        raise errors.invalid_value(found, "VisibilityTimeout", reason)
    return int(found)


def delay_s(params: Mapping[str, Any], *, fifo: bool) -> int | None:
    """Of a message that is sent; None: the queue's own."""
    found = params.get("DelaySeconds")
    if found is None:
        return None
    if not 0 <= found <= MOST_DELAY_S:
        reason = f"DelaySeconds must be >= 0 and <= {MOST_DELAY_S}."
        raise errors.invalid_value(found, "DelaySeconds", reason)
    if fifo and found:
        raise errors.not_for_this_type(found, "DelaySeconds")
    return None if fifo else int(found)


def results(params: Mapping[str, Any]) -> int | None:
    """How long a page of a list may be; None: it was not asked for, so the list comes without a token."""
    return _between(params, "MaxResults", MOST_RESULTS)


def tasks(params: Mapping[str, Any]) -> int:
    """How many move tasks a list may name: the latest alone, unless more are asked for."""
    return _between(params, "MaxResults", MOST_TASKS) or 1


def moved_a_second(params: Mapping[str, Any]) -> int | None:
    """Of a move task; None: as fast as it goes."""
    return _between(params, "MaxNumberOfMessagesPerSecond", MOST_MOVED_A_SECOND)


def _between(params: Mapping[str, Any], name: str, most: int) -> int | None:
    found = params.get(name)
    if found is not None and not 1 <= found <= most:
        raise errors.invalid_value(found, name, f"{name} must be an integer between 1 and {most}.")
    return found


def _at_most(params: Mapping[str, Any], name: str, default: int, most: int) -> int:
    found = params.get(name, default)
    if not 0 <= found <= most:
        raise errors.invalid_value(found, name, f"Must be >= 0 and <= {most}, if provided.")
    return int(found)
