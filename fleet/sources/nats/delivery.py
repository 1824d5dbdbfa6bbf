"""What JetStream writes on a delivery, and what Fleet reads there: pure.

A handle is the subject that acks a delivery, and the time when its stream was created. The subject alone would not do:
it has only names and numbers, and a stream that was deleted and created again uses them again, for other messages. (A
consumer that was created again does not matter: the number in the stream says which message is acked.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

GROUP_HEADERS = ("Nats-Msg-Group", "Fleet-Group")
ACK_PREFIX = "$JS.ACK."
_LONG_FORM = 11
_NUMBER = re.compile(r"[0-9]{1,20}", re.ASCII)
_TIME = re.compile(r"(?P<second>[^.]+?)(?:\.(?P<fraction>[0-9]{1,9}))?(?P<zone>Z|[+-][0-9]{2}:[0-9]{2})", re.ASCII)


class Marks(NamedTuple):
    """What an ack subject says of its delivery."""

    stream: str
    consumer: str
    deliveries: int
    stream_seq: int
    consumer_seq: int


def read_marks(subject: str) -> Marks | None:
    """`$JS.ACK.[domain.account.]stream.consumer.deliveries.streamSeq.consumerSeq.time.pending[.random]`, else None."""
    tokens = subject.split(".")
    if not subject.startswith(ACK_PREFIX) or (len(tokens) != 9 and len(tokens) < _LONG_FORM):
        return None
    at = 4 if len(tokens) >= _LONG_FORM else 2
    numbers = tokens[at + 2 : at + 7]
    if not all(_NUMBER.fullmatch(number) for number in numbers):
        return None
    return Marks(tokens[at], tokens[at + 1], int(numbers[0]), int(numbers[1]), int(numbers[2]))


def like(subject: str, *, stream_seq: int, consumer_seq: int) -> str:
    """The subject of another message's delivery by the same consumer."""
    tokens = subject.split(".")
    at = 4 if len(tokens) >= _LONG_FORM else 2
    tokens[at + 3 : at + 5] = [str(stream_seq), str(consumer_seq)]
    return ".".join(tokens)


@dataclass(frozen=True, slots=True)
class Incarnation:
    """When the stream was created, in ns: its name and its numbers may come again; this does not."""

    stream_ns: int

    def broker_id(self, stream_seq: int) -> str:
        return f"{self.stream_ns}-{stream_seq}"

    def handle(self, ack_subject: str) -> str:
        return f"{ack_subject}@{self.stream_ns}"

    def subject(self, handle: str) -> str | None:
        """The subject to send an ack to; None if the handle is of another incarnation, or is not a handle."""
        subject, at, created = handle.rpartition("@")
        return subject if at and created == str(self.stream_ns) else None


def group_of(headers: Mapping[str, str] | None, subject: str, group_token: int) -> str | None:
    for name in GROUP_HEADERS if headers else ():
        if headers and headers.get(name):
            return headers[name]
    if group_token:
        tokens = subject.split(".")
        return tokens[group_token - 1] if len(tokens) >= group_token else None
    return None


def read_time_ns(text: str) -> int:
    """The server's times have up to nine digits after the point, and `datetime` keeps six."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"no time: {text[:40]!r}")
    zone = "+00:00" if match["zone"] == "Z" else match["zone"]
    second = int(datetime.fromisoformat(match["second"] + zone).timestamp())
    return second * 1_000_000_000 + int((match["fraction"] or "0").ljust(9, "0"))


class Floors:
    """The last delivery of each message that this connection knows of; an ack of an earlier one is void.

    The server itself takes an ack of any delivery as an ack of the message. Bounded: the oldest are forgotten.
    """

    _OVER = 1 << 62

    def __init__(self, *, keep: int = 50_000) -> None:
        self._keep = keep
        self._floor: dict[int, int] = {}

    def shown(self, marks: Marks) -> None:
        self._set(marks.stream_seq, marks.consumer_seq)

    def acked(self, marks: Marks) -> None:
        self._set(marks.stream_seq, self._OVER)

    def shown_again(self, marks: Marks) -> None:
        self._set(marks.stream_seq, marks.consumer_seq + 1)

    def is_acked(self, marks: Marks) -> bool:
        return self._floor.get(marks.stream_seq) == self._OVER

    def is_void(self, marks: Marks) -> bool:
        return marks.consumer_seq < self._floor.get(marks.stream_seq, 0)

    def forget(self) -> None:
        self._floor.clear()

    def _set(self, stream_seq: int, floor: int) -> None:
        self._floor.pop(stream_seq, None)
        self._floor[stream_seq] = floor
        if len(self._floor) > self._keep:
            del self._floor[next(iter(self._floor))]
