"""The attributes of a queue: what they may be, what changes them, and how they are described.

Attributes are immutable. `create` and `changed` judge a whole call and either give new ones or raise, so a call changes
all or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fleet.broker.sqs import errors, partition, redrive, throttle
from fleet.broker.sqs.partition import partition_for
from fleet.broker.sqs.redrive import RedriveAllowPolicy, RedrivePolicy
from fleet.broker.sqs.throttle import UNSET, Throttle

MOST_BYTES = 1024 * 1024
MOST_DELAY_S = 900
MOST_WAIT_S = 20
MOST_VISIBILITY_S = 43_200
_INTEGERS = {
    "DelaySeconds": ("delay_s", 0, MOST_DELAY_S),
    "MaximumMessageSize": ("message_bytes", 1024, MOST_BYTES),
    "MessageRetentionPeriod": ("retention_s", 60, 14 * 24 * 3600),
    "ReceiveMessageWaitTimeSeconds": ("wait_s", 0, MOST_WAIT_S),
    "VisibilityTimeout": ("visibility_s", 0, MOST_VISIBILITY_S),
    "KmsDataKeyReusePeriodSeconds": ("kms_reuse_s", 60, 86_400),
}
_CHOICES = {
    "DeduplicationScope": ("scope", ("messageGroup", "queue")),
    "FifoThroughputLimit": ("limit", ("perQueue", "perMessageGroupId")),
}
_BOOLEANS = {"ContentBasedDeduplication": "content_dedup", "SqsManagedSseEnabled": "managed_sse"}
_UNKNOWN_TO_STANDARD = ("FifoQueue", "ContentBasedDeduplication")
READ_ONLY = (
    "QueueArn",
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
)
_SINGLE = ("FifoQueue", "PartitionCount", "KmsMasterKeyId", "Policy", "RedrivePolicy", "RedriveAllowPolicy")
SETTABLE = frozenset([*_INTEGERS, *_CHOICES, *_BOOLEANS, *throttle.NAMES, *_SINGLE])
NAMES = SETTABLE | set(READ_ONLY)
_DIGITS = re.compile(r"[0-9]{1,9}\Z")
_FROZEN_WITH_PARTITIONS = ("PartitionCount", "FifoThroughputLimit", "DeduplicationScope")


class Facts(msgspec.Struct, frozen=True):
    """What is not an attribute but described as one."""

    arn: str
    visible: int = 0
    not_visible: int = 0
    delayed: int = 0
    created_s: int = 0
    modified_s: int = 0


class Attributes(msgspec.Struct, frozen=True, omit_defaults=True):
    fifo: bool = False
    delay_s: int = 0
    message_bytes: int = MOST_BYTES
    retention_s: int = 345_600
    wait_s: int = 0
    visibility_s: int = 30
    redrive: RedrivePolicy | None = None
    allow: RedriveAllowPolicy | None = None
    policy: str = ""
    kms_key: str = ""
    kms_reuse_s: int = 300
    managed_sse: bool = True
    content_dedup: bool = False
    scope: str = ""
    """DeduplicationScope as it was given last. Empty: never."""
    created_scope: str = ""
    """As it was given at creation, which is the one that holds: ids that are known already are known by it."""
    limit: str = ""
    """FifoThroughputLimit as it was given last; `per_queue` says what holds."""
    partitions: int = 1
    throttle: Throttle = UNSET

    @property
    def dedup_per_group(self) -> bool:
        """Where nothing was chosen, partitions decide: a queue of several has no place that sees all of its ids."""
        return self.scope_is_group(self.created_scope)

    def scope_is_group(self, scope: str) -> bool:
        """Whether `scope`, which may be empty, is deduplication by group for this queue."""
        return scope == "messageGroup" or (not scope and self.partitions > 1)

    @property
    def per_queue(self) -> bool:
        """One throughput limit for the whole queue, so one partition takes everything."""
        return self.limit == "perQueue" or (not self.limit and self.partitions <= 1)

    def partition_of(self, group: str) -> int:
        return partition_for(group, partitions=self.partitions, per_queue=self.per_queue)

    def changed(self, given: Mapping[str, str]) -> Attributes:
        """By SetQueueAttributes. SqsError, and nothing changes, if one of them cannot be."""
        if self.fifo and given.get("FifoQueue", "true").lower() != "true":
            raise errors.invalid_attribute_value("FifoQueue", "Modifying queue type is not supported.")
        found = _applied(self, given)
        if max(self.partitions, found.partitions) > 1:
            for name in _FROZEN_WITH_PARTITIONS:
                if name in given and _value(self, name) != _value(found, name):
                    raise errors.invalid_attribute_value(name, f"{name} cannot be changed once the queue is created.")
        return _checked(found, given)

    def check_same(self, given: Mapping[str, str]) -> None:
        """For CreateQueue of a queue that exists: what is not given matches, what differs is QueueNameExists."""
        wanted = create(given, fifo=self.fifo)
        for name in given:
            if _value(self, name) != _value(wanted, name):
                raise errors.queue_name_exists(name)

    def described(self, asked: Iterable[str], facts: Facts) -> dict[str, str]:
        """For GetQueueAttributes; what is asked for by name and not set is left out, as at AWS."""
        wanted = set(asked)
        unknown = wanted - NAMES - {"All"}
        if unknown:
            raise errors.unknown_attribute(min(unknown))
        every = _described(self, facts)
        return every if "All" in wanted else {name: value for name, value in every.items() if name in wanted}


def create(given: Mapping[str, str], *, fifo: bool | None = None) -> Attributes:
    """By CreateQueue. `fifo`: the kind is known, and `given` need not say it."""
    if fifo is None:
        fifo = wants_fifo(given)
    found = _checked(_applied(Attributes(fifo=fifo), given), given)
    return msgspec.structs.replace(found, created_scope=found.scope)


def wants_fifo(given: Mapping[str, str]) -> bool:
    """Which kind of queue CreateQueue is to make: its name is judged by that."""
    text = given.get("FifoQueue")
    if text is None:
        return False
    if text.lower() != "true":
        # FifoQueue=false does not ask for a standard queue: to those, AWS says, the attribute is unknown.
        raise errors.unknown_attribute("FifoQueue") if text.lower() == "false" else _bad("FifoQueue")
    return True


def _applied(before: Attributes, given: Mapping[str, str]) -> Attributes:
    values: dict[str, Any] = {}
    limits = before.throttle
    for name, text in given.items():
        _check_kind(before, name, text)
        if name in throttle.NAMES:
            limits = throttle.changed(limits, name, throttle.parse_number(name, text))
        else:
            values.update(_parsed(name, text))
    throttle.check(limits)
    found = msgspec.structs.replace(before, throttle=limits, **values)
    return _with_one_encryption(found, given)


def _check_kind(before: Attributes, name: str, text: str) -> None:
    """SqsError for a name that this kind of queue has not."""
    if name not in SETTABLE:
        raise errors.unknown_attribute(name)
    if before.fifo:
        return
    if name in _UNKNOWN_TO_STANDARD:
        raise errors.unknown_attribute(name)
    if name in _CHOICES:
        raise errors.only_for_fifo(name)
    if name == "PartitionCount" and text not in ("", "0", "1"):
        reason = "PartitionCount > 1 is only valid on FIFO queues."
        raise errors.invalid_attribute_value(name, reason)


def _parsed(name: str, text: str) -> dict[str, Any]:
    """The fields that one attribute sets."""
    if name in _INTEGERS:
        attribute, least, most = _INTEGERS[name]
        if not text:
            return {attribute: getattr(_DEFAULTS, attribute)}
        if not _DIGITS.match(text) or not least <= int(text) <= most:
            raise _bad(name)
        return {attribute: int(text)}
    if name in _BOOLEANS:
        if text.lower() not in ("true", "false"):
            raise _bad(name)
        return {_BOOLEANS[name]: text.lower() == "true"}
    if name in _CHOICES:
        attribute, choices = _CHOICES[name]
        if text not in choices:
            raise errors.invalid_attribute_value(name, f"Must be one of {', '.join(choices)}.")
        return {attribute: text}
    match name:
        case "PartitionCount":
            if not _DIGITS.match(text or "0") or int(text or "0") not in partition.COUNTS:
                reason = "PartitionCount must be a power of two, at most 32."
                raise errors.invalid_attribute_value(name, reason)
            return {"partitions": max(1, int(text or "0"))}
        case "Policy":
            if text and not redrive.is_map(text):
                raise _bad(name)
            return {"policy": text}
        case "KmsMasterKeyId":
            return {"kms_key": text}
        case "RedrivePolicy":
            return {"redrive": redrive.parse_policy(text) if text else None}
        case "RedriveAllowPolicy":
            return {"allow": redrive.parse_allow_policy(text) if text else None}
    return {}


def _checked(found: Attributes, given: Mapping[str, str]) -> Attributes:
    """SqsError for values that are good alone and not together."""
    if found.partitions > 1 and found.scope == "queue":
        raise errors.invalid_parameter(
            "PartitionCount > 1 needs DeduplicationScope messageGroup:"
            " a partition knows only the deduplication ids of its own groups."
        )
    asked = "FifoThroughputLimit" in given or "DeduplicationScope" in given
    if asked and found.limit == "perMessageGroupId" and not found.scope_is_group(found.scope):
        reason = "The perMessageGroupId value is allowed only when the value for DeduplicationScope is messageGroup."
        raise errors.invalid_attribute_value("FifoThroughputLimit", reason)
    return found


def _with_one_encryption(found: Attributes, given: Mapping[str, str]) -> Attributes:
    """A key turns the other kind of encryption off, and that kind takes the key away."""
    kms, managed = bool(given.get("KmsMasterKeyId")), given.get("SqsManagedSseEnabled", "").lower() == "true"
    if kms and managed:
        raise errors.two_kinds_of_encryption()
    if kms:
        return msgspec.structs.replace(found, managed_sse=False)
    return msgspec.structs.replace(found, kms_key="", kms_reuse_s=_DEFAULTS.kms_reuse_s) if managed else found


def _value(attributes: Attributes, name: str) -> object:
    """What an attribute amounts to: the same for two ways to say the same thing."""
    match name:
        case "DeduplicationScope":
            return attributes.scope_is_group(attributes.scope)
        case "FifoThroughputLimit":
            return attributes.per_queue
        case "FifoQueue":
            return attributes.fifo
        case _ if name in throttle.NAMES:
            return throttle.value_of(attributes.throttle, name)
    return getattr(attributes, _FIELDS[name])


def _described(attributes: Attributes, facts: Facts) -> dict[str, str]:
    found = {
        "QueueArn": facts.arn,
        "ApproximateNumberOfMessages": str(facts.visible),
        "ApproximateNumberOfMessagesNotVisible": str(facts.not_visible),
        "ApproximateNumberOfMessagesDelayed": str(facts.delayed),
        "CreatedTimestamp": str(facts.created_s),
        "LastModifiedTimestamp": str(facts.modified_s),
        "SqsManagedSseEnabled": _text(attributes.managed_sse),
    }
    found |= {name: str(getattr(attributes, one[0])) for name, one in _INTEGERS.items() if not name.startswith("Kms")}
    if attributes.kms_key:
        found["KmsMasterKeyId"] = attributes.kms_key
        found["KmsDataKeyReusePeriodSeconds"] = str(attributes.kms_reuse_s)
    if attributes.policy:
        found["Policy"] = attributes.policy
    if attributes.redrive is not None:
        found["RedrivePolicy"] = redrive.written(attributes.redrive)
    if attributes.allow is not None:
        found["RedriveAllowPolicy"] = redrive.written(attributes.allow)
    if attributes.fifo:
        found["FifoQueue"] = "true"
        found["ContentBasedDeduplication"] = _text(attributes.content_dedup)
        found["DeduplicationScope"] = "messageGroup" if attributes.scope_is_group(attributes.scope) else "queue"
        found["FifoThroughputLimit"] = "perQueue" if attributes.per_queue else "perMessageGroupId"
        if attributes.partitions > 1:
            found["PartitionCount"] = str(attributes.partitions)
    return found | throttle.described(attributes.throttle)


def _bad(name: str) -> errors.SqsError:
    return errors.invalid_attribute_value(name)


def _text(value: bool) -> str:
    return "true" if value else "false"


_DEFAULTS = Attributes()
_FIELDS = {
    **{name: one[0] for name, one in _INTEGERS.items()},
    **_BOOLEANS,
    "PartitionCount": "partitions",
    "Policy": "policy",
    "KmsMasterKeyId": "kms_key",
    "RedrivePolicy": "redrive",
    "RedriveAllowPolicy": "allow",
}
"""Of the attributes whose value is a field as it is."""
