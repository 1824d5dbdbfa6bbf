"""The stream and its durable consumer: whether they are there, set up as we need them, and the same ones as before."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from fleet.errors import SourceUnavailable
from fleet.sources.nats.address import NatsAddress
from fleet.sources.nats.delivery import Incarnation, read_time_ns
from fleet.sources.nats.line import ApiError, NatsLine

log = logging.getLogger("fleet.sources")

_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class FoundConsumer:
    incarnation: Incarnation
    stream: dict[str, Any]
    consumer: dict[str, Any] | None

    @property
    def delivered(self) -> tuple[int, int]:
        """The stream and the consumer sequence of the newest message that was delivered for the first time."""
        delivered = (self.consumer or {}).get("delivered", {})
        return int(delivered.get("stream_seq", 0)), int(delivered.get("consumer_seq", 0))


async def look(line: NatsLine) -> FoundConsumer:
    """Changes nothing. Raises `SourceUnavailable` if there is no such stream."""
    address = line.address
    stream = await stream_of(line)
    try:
        consumer = await line.api(f"CONSUMER.INFO.{address.stream}.{address.consumer}")
    except ApiError as error:
        if error.code != _NOT_FOUND:
            raise line.away(f"consumer {address.consumer}: {error}") from error
        consumer = None
    return FoundConsumer(Incarnation(read_time_ns(stream["created"])), stream, consumer)


async def stream_of(line: NatsLine) -> dict[str, Any]:
    name = line.address.stream
    try:
        return await line.api(f"STREAM.INFO.{name}")
    except ApiError as error:
        why = "it does not exist: create it, Fleet does not" if error.code == _NOT_FOUND else str(error)
        raise line.away(f"stream {name}: {why}") from error


async def prepare(line: NatsLine, visibility_ms: int) -> FoundConsumer:
    """Create the consumer if it is missing, or give an existing one our ack wait and no limits."""
    found, address = await look(line), line.address
    need = {"ack_wait": visibility_ms * 1_000_000, "max_ack_pending": -1, "max_deliver": -1}
    if found.consumer is None:
        config = {
            "durable_name": address.consumer,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "replay_policy": "instant",
            **({"filter_subject": address.subject} if address.subject else {}),
            **need,
        }
    else:
        is_config = found.consumer["config"]
        _check(line, is_config, address)
        changed = {name: value for name, value in need.items() if is_config.get(name) != value}
        if not changed and not is_config.get("backoff"):
            return found
        said = ", ".join(f"{name} {is_config.get(name)} → {value}" for name, value in changed.items())
        log.info("NATS consumer %s/%s: %s", address.stream, address.consumer, said or "without its backoff")
        config = {name: value for name, value in is_config.items() if name != "backoff"} | need
    try:
        await line.api(
            f"CONSUMER.DURABLE.CREATE.{address.stream}.{address.consumer}",
            {"stream_name": address.stream, "config": config},
        )
    except ApiError as error:
        raise line.away(f"consumer {address.consumer} cannot be created or updated: {error}") from error
    return await look(line)


def _check(line: NatsLine, config: dict[str, Any], address: NatsAddress) -> None:
    """Refuse settings that cannot be changed any more and would not work."""
    if config.get("deliver_subject"):
        raise _unfit(line, "is a push consumer")
    if config.get("ack_policy") != "explicit":
        raise _unfit(line, f"has ack policy {config.get('ack_policy')}, not explicit")
    if config.get("headers_only"):
        raise _unfit(line, "delivers headers only")
    if address.subject and config.get("filter_subject", "") != address.subject:
        raise _unfit(line, "has another filter subject than the URI")


def _unfit(line: NatsLine, why: str) -> SourceUnavailable:
    return line.away(f"consumer {line.address.consumer} {why}: name another, or delete it")
