"""What a verb costs, which bucket pays, and what a caller hears when it is empty. The bucket itself is in Redis.

A bucket holds at most `capacity` tokens and regains `refill` of them a second. Send and Recv have one each; where one
is not set, both kinds of call share the Default bucket.
"""

from __future__ import annotations

import math
import re
from typing import Any, Literal, get_args

import msgspec

from fleet.broker.sqs import errors
from fleet.broker.sqs.errors import SqsError

Action = Literal["Send", "Receive"]
BucketName = Literal["Send", "Receive", "*"]
"""`*` is the Default bucket, one for both actions."""
_CHARGED: dict[str, Action] = {
    "SendMessage": "Send",
    "SendMessageBatch": "Send",
    "ReceiveMessage": "Receive",
    "DeleteMessage": "Receive",
    "DeleteMessageBatch": "Receive",
    "ChangeMessageVisibility": "Receive",
    "ChangeMessageVisibilityBatch": "Receive",
}
MOST = 100_000.0
LEAST_CAPACITY = 10.0
"""A whole batch: a bucket that holds less could never pay for one."""
LONGEST_RETRY_S = 3600
_NUMBER = re.compile(r"\+?(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})(?:[eE][+-]?[0-9]{1,2})?\Z")


class Limit(msgspec.Struct, frozen=True):
    """Two zeros: no limit is set."""

    capacity: float = 0.0
    refill: float = 0.0


NONE = Limit()


class Throttle(msgspec.Struct, frozen=True):
    send: Limit = NONE
    recv: Limit = NONE
    default: Limit = NONE


UNSET = Throttle()


class Bucket(msgspec.Struct, frozen=True):
    name: BucketName
    capacity: float
    refill: float


def charge_of(verb: str, params: dict[str, Any]) -> tuple[Action, int] | None:
    """Whom a call charges and how much; None: it is free."""
    action = _CHARGED.get(verb)
    if action is None:
        return None
    return action, len(params.get("Entries", ())) if verb.endswith("Batch") else 1


def bucket_of(throttle: Throttle, action: Action) -> Bucket | None:
    """None: nothing limits this."""
    own = throttle.send if action == "Send" else throttle.recv
    if own.capacity > 0:
        return Bucket(action, own.capacity, own.refill)
    shared = throttle.default
    return Bucket("*", shared.capacity, shared.refill) if shared.capacity > 0 else None


def buckets_of(throttle: Throttle) -> list[Bucket]:
    """Those that are in use."""
    found = (bucket_of(throttle, action) for action in get_args(Action))
    return list({bucket.name: bucket for bucket in found if bucket is not None}.values())


def retry_after_s(*, tokens: float, charge: int, refill: float) -> int:
    """When there will be enough for this very call, not just for one message."""
    missing = (charge - tokens) / refill if refill > 0 else LONGEST_RETRY_S
    return min(LONGEST_RETRY_S, max(1, math.ceil(missing)))


def rejection(queue: str, action: Action, retry_after_s: int) -> SqsError:
    return errors.throttling(queue, action, retry_after_s)


# The attributes ------------------------------------------------------------------------------------

_FIELDS = {
    f"Throttle{kind}{part}": (kind.lower(), attribute)
    for kind in ("Send", "Recv", "Default")
    for part, attribute in (("Capacity", "capacity"), ("RefillPerSecond", "refill"))
}
NAMES = tuple(_FIELDS)


def parse_number(name: str, text: str) -> float:
    """Empty is zero: unset."""
    value = float(text) if _NUMBER.match(text) else 0.0 if text == "" else math.nan
    if not math.isfinite(value):
        raise errors.invalid_attribute_value(name, "Must be a non-negative finite number.")
    if value > MOST:
        raise errors.invalid_attribute_value(name, f"Must be at most {MOST:g}.")
    return value


def changed(throttle: Throttle, name: str, value: float) -> Throttle:
    """With one of the six attributes changed; whether they fit together, `check` says when all of a call are in."""
    kind, part = _FIELDS[name]
    limit = msgspec.structs.replace(getattr(throttle, kind), **{part: value})
    return msgspec.structs.replace(throttle, **{kind: limit})


def value_of(throttle: Throttle, name: str) -> float:
    kind, part = _FIELDS[name]
    found: float = getattr(getattr(throttle, kind), part)
    return found


def check(throttle: Throttle) -> None:
    """SqsError for a pair that could never let a call through, or never refill."""
    for kind in ("Send", "Recv", "Default"):
        limit: Limit = getattr(throttle, kind.lower())
        capacity, refill = f"Throttle{kind}Capacity", f"Throttle{kind}RefillPerSecond"
        if (limit.capacity == 0) != (limit.refill == 0):
            zero = capacity if limit.capacity == 0 else refill
            raise errors.invalid_attribute_value(
                zero, f"{capacity} and {refill} must both be positive, or both be zero."
            )
        if limit.capacity < limit.refill:
            raise errors.invalid_attribute_value(capacity, f"Must be at least {refill}.")
        if 0 < limit.capacity < LEAST_CAPACITY:
            reason = f"Must be at least {LEAST_CAPACITY:g}, which is what a full batch costs."
            raise errors.invalid_attribute_value(capacity, reason)


def described(throttle: Throttle) -> dict[str, str]:
    """The attributes that are set."""
    return {
        name: f"{value_of(throttle, name):.15g}"
        for name, (kind, _) in _FIELDS.items()
        if getattr(throttle, kind).capacity > 0
    }
