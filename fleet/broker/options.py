"""The options of a subscription: read and checked once, frozen, and stored as they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import msgspec

from fleet.broker import filter as filters
from fleet.broker.errors import InvalidArgument
from fleet.broker.names import check_topic_name
from fleet.broker.spelling import in_our_words

ACK_DEADLINE_S = (10, 600)
BACKOFF_S = (0, 600)
RETENTION_S = (600, 31 * 24 * 60 * 60)
_MOST_DOUBLINGS = 1000
"""More would leave the range of a float, and the longest backoff is long since reached."""
_DEFAULT_RETENTION_S = 7 * 24 * 60 * 60


class _Group(msgspec.Struct, frozen=True, kw_only=True):
    """Options that are read from one mapping."""

    @classmethod
    def read(cls, given: object, path: str) -> Self:
        if isinstance(given, cls):
            return given
        return cls(**in_our_words(given, {name: name for name in cls.__struct_fields__}, path))


class RetryPolicy(_Group, frozen=True, kw_only=True):
    """How long a message stays away after a nack or a lapse. The defaults are Pub/Sub's."""

    minimum_backoff: float = 10
    maximum_backoff: float = 600

    def __post_init__(self) -> None:
        _check_number("retry_policy.minimum_backoff", self.minimum_backoff, *BACKOFF_S)
        _check_number("retry_policy.maximum_backoff", self.maximum_backoff, *BACKOFF_S)
        if self.minimum_backoff > self.maximum_backoff:
            raise InvalidArgument(
                f"retry_policy: minimum_backoff ({self.minimum_backoff:g} s) is longer than"
                f" maximum_backoff ({self.maximum_backoff:g} s)"
            )

    def backoff(self, attempt: int) -> float:
        """Seconds after this delivery attempt, of which the first is 1."""
        doublings = min(max(attempt - 1, 0), _MOST_DOUBLINGS)
        return min(math.ldexp(self.minimum_backoff, doublings), float(self.maximum_backoff))


class DeadLetterPolicy(_Group, frozen=True, kw_only=True):
    """Where a message goes when its attempts are spent. The seed gives no range of attempts; Pub/Sub has 5 to 100."""

    dead_letter_topic: str = ""
    max_delivery_attempts: int = 5

    def __post_init__(self) -> None:
        if not self.dead_letter_topic:
            raise InvalidArgument("dead_letter_policy: dead_letter_topic is missing")
        check_topic_name(self.dead_letter_topic)
        _check_whole("dead_letter_policy.max_delivery_attempts", self.max_delivery_attempts)


class FlowControl(_Group, frozen=True, kw_only=True):
    """How much of a subscription may be out at once; None is no limit."""

    max_messages: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("max_messages", self.max_messages), ("max_bytes", self.max_bytes)):
            if value is not None:
                _check_whole(f"flow_control.{name}", value)


class SubscriptionOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    ack_deadline_seconds: float = 10
    message_ordering: bool = False
    retry_policy: RetryPolicy | None = None
    """None: what is nacked or lapses shows again at once."""
    dead_letter_policy: DeadLetterPolicy | None = None
    flow_control: FlowControl | None = None
    filter: str = ""
    message_retention_seconds: float = _DEFAULT_RETENTION_S

    def __post_init__(self) -> None:
        _check_number("ack_deadline_seconds", self.ack_deadline_seconds, *ACK_DEADLINE_S)
        _check_number("message_retention_seconds", self.message_retention_seconds, *RETENTION_S)
        if not isinstance(self.message_ordering, bool):
            raise InvalidArgument(f"message_ordering must be True or False, is {self.message_ordering!r}")
        if not isinstance(self.filter, str):
            raise InvalidArgument(f"filter must be text, is {type(self.filter).__name__}")
        filters.compiled(self.filter)

    @classmethod
    def read(cls, given: SubscriptionOptions | Mapping[str, object] | None = None, /, **options: Any) -> Self:
        """From a mapping, from keywords, or from both, which may not name the same twice."""
        if isinstance(given, cls):
            if options:
                raise InvalidArgument("options are given as SubscriptionOptions and as keywords: take one")
            return given
        found = in_our_words(given if given is not None else {}, _NAMES, "options")
        for name, value in in_our_words(options, _NAMES, "options").items():
            if name in found:
                raise InvalidArgument(f"options: {name} is given twice, in the mapping and as a keyword")
            found[name] = value
        for name, group in _GROUPS.items():
            if name in found:
                found[name] = group.read(found[name], name)
        return cls(**found)

    def backoff(self, attempt: int) -> float:
        """Seconds that a message stays away after this attempt."""
        return self.retry_policy.backoff(attempt) if self.retry_policy else 0.0


_GROUPS: Mapping[str, type[_Group]] = {
    "retry_policy": RetryPolicy,
    "dead_letter_policy": DeadLetterPolicy,
    "flow_control": FlowControl,
}
_NAMES: Mapping[str, str] = {name: name for name in SubscriptionOptions.__struct_fields__} | {
    "enable_message_ordering": "message_ordering",
    "message_retention_duration": "message_retention_seconds",  # the seed's name for it
}


def _check_number(path: str, value: Any, least: float, most: float) -> None:
    # A bool is an int to Python, and nan compares with nothing.
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidArgument(f"{path} must be a number of seconds from {least} to {most}, is {value!r}")


def _check_whole(path: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgument(f"{path} must be a whole number from 1 on, is {value!r}")
