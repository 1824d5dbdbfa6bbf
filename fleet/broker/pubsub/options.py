"""A subscription as Pub/Sub writes it, and our options."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fleet.broker.errors import InvalidArgument
from fleet.broker.options import DeadLetterPolicy, RetryPolicy, SubscriptionOptions
from fleet.broker.pubsub import wire
from fleet.broker.pubsub.errors import Unsupported
from fleet.broker.pubsub.names import DELETED_TOPIC, subscription_path, topic_of, topic_path
from fleet.broker.records import Subscription

_KEPT = {
    "name", "topic", "ack_deadline_seconds", "message_retention_duration", "enable_message_ordering", "filter",
    "dead_letter_policy", "retry_policy",
}  # fmt: skip
_OVERLOOKED = {"labels", "tags", "expiration_policy"}
"""They say nothing about what is delivered, or only when nobody wants it any more."""
_TOLD = {
    "state", "detached", "satisfies_pzs", "topic_message_retention_duration", "analytics_hub_subscription_info",
}  # fmt: skip
"""Which a server fills in. A client that sends back what it was told has not asked for anything by them."""


def refuse_what_we_cannot(asked: Any, kept: set[str] | None = None) -> None:
    """A field that changes what is delivered, and is not ours, is refused and not read over."""
    for field, value in asked.ListFields():
        if field.name in (_KEPT if kept is None else kept) | _OVERLOOKED | _TOLD:
            continue
        if field.message_type is not None and not field.is_repeated and not value.ListFields():
            continue  # an empty push_config is how some clients say: by pull
        raise Unsupported(f"{field.name} is not supported here (docs/broker.md, The Pub/Sub door)")


def options_of(asked: Any) -> SubscriptionOptions:
    refuse_what_we_cannot(asked)
    given: dict[str, Any] = {"message_ordering": asked.enable_message_ordering, "filter": asked.filter}
    if asked.ack_deadline_seconds:
        given["ack_deadline_seconds"] = asked.ack_deadline_seconds
    if asked.HasField("message_retention_duration"):
        given["message_retention_seconds"] = _seconds(asked.message_retention_duration)
    if asked.HasField("dead_letter_policy"):
        given["dead_letter_policy"] = _dead_letter_policy(asked.dead_letter_policy)
    if asked.HasField("retry_policy"):
        given["retry_policy"] = _retry_policy(asked.retry_policy)
    return SubscriptionOptions.read(given)


def told(subscription: Subscription, project: str) -> Any:
    options = subscription.options
    answer = wire.Subscription(
        name=subscription_path(project, subscription.name),
        topic=DELETED_TOPIC if subscription.detached else topic_path(project, subscription.topic),
        # Ours may be a fraction: a client that waits for the whole second more is late for nothing.
        ack_deadline_seconds=math.ceil(options.ack_deadline_seconds),
        enable_message_ordering=options.message_ordering,
        filter=options.filter,
        state=1,  # ACTIVE
    )
    _put(answer.message_retention_duration, options.message_retention_seconds)
    if options.dead_letter_policy:
        answer.dead_letter_policy.dead_letter_topic = topic_path(project, options.dead_letter_policy.dead_letter_topic)
        answer.dead_letter_policy.max_delivery_attempts = options.dead_letter_policy.max_delivery_attempts
    if options.retry_policy:
        _put(answer.retry_policy.minimum_backoff, options.retry_policy.minimum_backoff)
        _put(answer.retry_policy.maximum_backoff, options.retry_policy.maximum_backoff)
    return answer


def refuse_changes(now: Any, asked: Any, paths: Sequence[str]) -> None:
    """Nothing of what is there can be changed; what would stay as it is may be asked for."""
    if not paths:
        raise InvalidArgument("update_mask is empty, and must name what is to change")
    for path in paths:
        if _at(now, path) != _at(asked, path):
            raise Unsupported(f"{path} cannot be changed: delete {now.name} and make it anew")


def _at(message: Any, path: str) -> Any:
    found = message
    for name in path.split("."):
        descriptor = getattr(found, "DESCRIPTOR", None)
        if descriptor is None or name not in descriptor.fields_by_name:
            raise InvalidArgument(f"update_mask: there is no field {path}")
        found = getattr(found, name)
    return found


def _dead_letter_policy(asked: Any) -> DeadLetterPolicy:
    topic = topic_of(asked.dead_letter_topic).name
    if not asked.max_delivery_attempts:
        return DeadLetterPolicy(dead_letter_topic=topic)
    return DeadLetterPolicy(dead_letter_topic=topic, max_delivery_attempts=asked.max_delivery_attempts)


def _retry_policy(asked: Any) -> RetryPolicy:
    return RetryPolicy(**{field.name: _seconds(value) for field, value in asked.ListFields()})


def _seconds(duration: Any) -> float:
    return float(duration.seconds + duration.nanos / 1e9)


def _put(duration: Any, seconds: float) -> None:
    duration.FromNanoseconds(round(seconds * 1e9))
