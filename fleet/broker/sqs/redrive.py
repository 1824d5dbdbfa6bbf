"""The two policies about dead letters, out of the JSON text that AWS carries them in."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from fleet.broker.sqs import errors
from fleet.broker.sqs.names import name_of_arn

MOST_RECEIVES = 1000
MOST_SOURCES = 10
Permission = Literal["allowAll", "denyAll", "byQueue"]


class RedrivePolicy(msgspec.Struct, frozen=True, rename="camel"):
    """Where a message goes that was received too often."""

    dead_letter_target_arn: str
    max_receive_count: int

    @property
    def target(self) -> str:
        """The name of the queue."""
        return name_of_arn(self.dead_letter_target_arn)


class RedriveAllowPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which queues may name this one as their dead-letter queue."""

    redrive_permission: Permission = "allowAll"
    source_queue_arns: tuple[str, ...] = ()

    def allows(self, source_arn: str) -> bool:
        match self.redrive_permission:
            case "allowAll":
                return True
            case "denyAll":
                return False
            case "byQueue":
                return source_arn in self.source_queue_arns


def parse_policy(text: str) -> RedrivePolicy:
    """Whether the target exists and is of the same kind, the verb looks; `refused` and `other_kind` are its errors."""
    given = _map_of(text)
    if given is None:
        raise _invalid(text, "Redrive policy is not a valid JSON map.")
    for name in ("maxReceiveCount", "deadLetterTargetArn"):
        if given.get(name) in (None, ""):
            raise _invalid(text, f"Redrive policy does not contain mandatory attribute: {name}.")
    count, target = given["maxReceiveCount"], given["deadLetterTargetArn"]
    times = _count(count)
    if times is None or not 1 <= times <= MOST_RECEIVES:
        reason = (
            f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to {MOST_RECEIVES} both inclusive."
        )
        raise _invalid(text, reason)
    if not isinstance(target, str) or not name_of_arn(target):
        raise _invalid(text, "Invalid value for deadLetterTargetArn.")
    return RedrivePolicy(target, times)


def parse_allow_policy(text: str) -> RedriveAllowPolicy:
    given = _map_of(text)
    if given is None:
        raise _not_allowed(text, "Redrive allow policy is not a valid JSON map.")
    try:
        policy = msgspec.convert(given, RedriveAllowPolicy)
    except msgspec.ValidationError as error:
        reason = "Amazon SQS can't create the redrive allow policy, as it's in an unsupported format."
        raise _not_allowed(text, reason) from error
    arns = policy.source_queue_arns
    if (policy.redrive_permission == "byQueue") != bool(arns):
        raise _not_allowed(text, "sourceQueueArns go with the redrivePermission byQueue, and with no other.")
    if len(arns) > MOST_SOURCES or not all(name_of_arn(arn) for arn in arns):
        raise _not_allowed(text, f"sourceQueueArns must be at most {MOST_SOURCES} ARNs of queues.")
    return policy


def written(policy: RedrivePolicy | RedriveAllowPolicy) -> str:
    if isinstance(policy, RedriveAllowPolicy) and not policy.source_queue_arns:
        return f'{{"redrivePermission":"{policy.redrive_permission}"}}'
    return msgspec.json.encode(policy).decode()


# What a verb finds out about the target ------------------------------------------------------------


def no_such_target(text: str) -> errors.SqsError:
    return _invalid(text, "Dead letter target does not exist.")


def other_kind(text: str) -> errors.SqsError:
    return _invalid(text, "Dead-letter queue must be same type of queue as the source.")


def refused(text: str) -> errors.SqsError:
    return _invalid(text, "The redrive allow policy of the dead-letter queue does not let this queue use it.")


def _invalid(text: str, reason: str) -> errors.SqsError:
    return errors.invalid_value(text, "RedrivePolicy", reason)


def _not_allowed(text: str, reason: str) -> errors.SqsError:
    return errors.invalid_value(text, "RedriveAllowPolicy", reason)


def is_map(text: str) -> bool:
    """Whether it is the JSON of an object."""
    return _map_of(text) is not None


def _map_of(text: str) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _count(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 9:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
