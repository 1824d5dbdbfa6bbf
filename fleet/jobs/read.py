"""Jobs, events and subscriptions as people write them, checked: a line of JSON each, or a line that says why not."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from fleet.config.router import nearest
from fleet.delivery.origin import origin_of
from fleet.errors import InvalidJob
from fleet.jobs.records import (
    DEFAULT_MAX_RETRIES,
    DEFAULT_SEQUENCE,
    DEFAULT_TIMEOUT_S,
    MODES,
    NewEvent,
    NewJob,
    Subscription,
)
from fleet.message import DEFAULT_POOL, MAX_NAME_CHARACTERS, DispatchMode
from fleet.words import read_moment

T = TypeVar("T")

MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_LINE_BYTES = MAX_PAYLOAD_BYTES + 64 * 1024
MAX_URL_CHARACTERS = 4096
MAX_KEY_CHARACTERS = 255
MAX_TIMEOUT_S = 900
"""By default, a worker waits no longer for an answer."""
MAX_RETRIES = 100
MAX_SUBSCRIPTION_CHARACTERS = 48
MAX_EVENT_GROUP_CHARACTERS = MAX_NAME_CHARACTERS - MAX_SUBSCRIPTION_CHARACTERS - 1
"""The group of an event's job is `subscription:group`, and has to fit a message."""
_MAX_SEQUENCE = 2**31 - 1
_MAX_MS = 253_402_300_799_999  # the last of the year 9999
_SEGMENT = re.compile(r"[^\s:*]+")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`$")


@dataclass(frozen=True, slots=True)
class Line(Generic[T]):
    """One line of a file: what it holds, or why it cannot be taken."""

    number: int
    content: T | None
    refusal: str = ""
    size_bytes: int = 0


class _Job(msgspec.Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    target_url: str
    payload: msgspec.Raw
    id: str | None = None
    mode: str = "NEXT_ON_ERROR"
    pool_code: str | None = None
    message_group: str | None = None
    sequence: int = DEFAULT_SEQUENCE
    scheduled_for: str | int | None = None
    expires_at: str | int | None = None
    max_retries: int = DEFAULT_MAX_RETRIES
    timeout_seconds: int = DEFAULT_TIMEOUT_S
    idempotency_key: str | None = None
    source: str | None = None
    kind: str | None = None
    code: str | None = None
    subject: str | None = None
    event_id: str | None = None


class _Event(msgspec.Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    type: str
    payload: msgspec.Raw
    id: str | None = None
    group: str | None = None


_decode_job = msgspec.json.Decoder(_Job).decode
_decode_event = msgspec.json.Decoder(_Event).decode


def read_job(line: bytes) -> NewJob:
    """InvalidJob says what is wrong."""
    given = _decoded(line, _decode_job, _Job)
    return NewJob(
        id=_name("id", given.id) or "",
        target_url=target_url("targetUrl", given.target_url),
        payload=_payload(given.payload),
        mode=mode("mode", given.mode),
        pool=_name("poolCode", given.pool_code) or DEFAULT_POOL,
        msg_group=_name("messageGroup", given.message_group),
        sequence=_number("sequence", given.sequence, -_MAX_SEQUENCE - 1, _MAX_SEQUENCE),
        scheduled_ms=_moment("scheduledFor", given.scheduled_for),
        expires_ms=_moment("expiresAt", given.expires_at),
        max_retries=_number("maxRetries", given.max_retries, 0, MAX_RETRIES),
        timeout_seconds=_number("timeoutSeconds", given.timeout_seconds, 1, MAX_TIMEOUT_S),
        idempotency_key=_name("idempotencyKey", given.idempotency_key, MAX_KEY_CHARACTERS),
        source=_name("source", given.source),
        kind=_name("kind", given.kind),
        code=_name("code", given.code),
        subject=_name("subject", given.subject, MAX_KEY_CHARACTERS),
        event_id=_name("eventId", given.event_id),
    )


def read_event(line: bytes) -> NewEvent:
    given = _decoded(line, _decode_event, _Event)
    return NewEvent(
        id=_name("id", given.id) or "",
        type=event_type(given.type),
        payload=_payload(given.payload),
        msg_group=_name("group", given.group, MAX_EVENT_GROUP_CHARACTERS),
    )


def read_lines(lines: Iterable[bytes], read: Callable[[bytes], T]) -> Iterator[Line[T]]:
    """Empty lines are skipped, but counted."""
    for number, line in enumerate(lines, start=1):
        body = line.strip()
        if not body:
            continue
        try:
            yield Line(number, read(body), size_bytes=len(body))
        except InvalidJob as error:
            yield Line(number, None, str(error))


def subscription(
    *, pattern: str, target: str, mode_: str = "NEXT_ON_ERROR", pool: str | None = None, name: str | None = None
) -> Subscription:
    """Without a name it gets one made of its pattern and target, so subscribing is idempotent."""
    pattern, target = event_pattern(pattern), target_url("target", target)
    given = _name("name", name, MAX_SUBSCRIPTION_CHARACTERS)
    if given is None:
        mark = hashlib.sha256(f"{pattern} {target}".encode()).hexdigest()[:8]
        given = f"{pattern.replace(':', '.').replace('*', 'any')[: MAX_SUBSCRIPTION_CHARACTERS - 9]}-{mark}"
    return Subscription(
        name=given, pattern=pattern, target_url=target, mode=mode("mode", mode_),
        pool=_name("pool", pool) or DEFAULT_POOL,
    )  # fmt: skip


# One field each ------------------------------------------------------------------------------------


def event_type(text: str) -> str:
    _name("type", text)
    if not all(_SEGMENT.fullmatch(segment) for segment in text.split(":")):
        raise InvalidJob(f"type: {_shown(text)} must be words separated by colons, like order:item:added")
    return text


def event_pattern(text: str) -> str:
    _name("pattern", text)
    for segment in text.split(":"):
        if segment != "*" and not _SEGMENT.fullmatch(segment):
            why = "a star stands for a whole segment" if "*" in segment else "a segment is a word or a star"
            raise InvalidJob(f"pattern: {_shown(text)}: {why}, like order:*:added")
    return text


def target_url(field: str, text: str) -> str:
    if len(text) > MAX_URL_CHARACTERS:
        raise InvalidJob(f"{field}: {len(text)} characters, the limit is {MAX_URL_CHARACTERS}")
    if not text.isprintable() or " " in text or not text.lower().startswith(("http://", "https://")):
        raise InvalidJob(f"{field}: {_shown(text)} is not an http or https URL")
    if not origin_of(text):
        raise InvalidJob(f"{field}: {_shown(text)} names no host that could be called")
    return text


def mode(field: str, text: str) -> DispatchMode:
    if text not in MODES:
        raise InvalidJob(f"{field}: {_shown(text)} is not one of {', '.join(MODES)}")
    return text


def _name(field: str, text: str | None, most: int = MAX_NAME_CHARACTERS) -> str | None:
    """None if there is none: a null and an empty group both mean no group."""
    if not text:
        return None
    if len(text) > most:
        raise InvalidJob(f"{field}: {len(text)} characters, the limit is {most}")
    if not text.isprintable():
        raise InvalidJob(f"{field}: holds an unprintable character")
    return text


def _number(field: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise InvalidJob(f"{field}: {value} is not within {least} and {most}")
    return value


def _moment(field: str, value: str | int | None) -> int | None:
    """Milliseconds, from ISO 8601 (UTC where it names no zone) or as they are. The past is allowed: due at once."""
    if value is None:
        return None
    try:
        ms = read_moment(value) if isinstance(value, str) else value
    except ValueError:
        raise InvalidJob(f"{field}: {_shown(str(value))} is not a time like 2030-01-31T12:00:00Z") from None
    return _number(field, ms, -_MAX_MS, _MAX_MS)


def _payload(raw: msgspec.Raw) -> str:
    """As it was written: numbers keep their digits, objects their order."""
    body = bytes(raw)
    if len(body) > MAX_PAYLOAD_BYTES:
        raise InvalidJob(f"payload: {len(body)} bytes, the limit is {MAX_PAYLOAD_BYTES}")
    try:
        msgspec.json.decode(body)
        text = body.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJob(f"payload: not JSON: {error}") from None
    if "\0" in text:
        raise InvalidJob("payload: not JSON: holds a NUL")
    return text


def _decoded(line: bytes, decode: Callable[[bytes], T], kind: type[Any]) -> T:
    if len(line) > MAX_LINE_BYTES:
        raise InvalidJob(f"{len(line)} bytes; the limit of a payload is {MAX_PAYLOAD_BYTES}")
    try:
        return decode(line)
    except msgspec.ValidationError as error:
        unknown = _UNKNOWN.match(str(error))
        if unknown is None:
            raise InvalidJob(str(error)) from None
        hint = nearest(unknown[1], set(kind.__struct_encode_fields__))
        raise InvalidJob(f"{_shown(unknown[1])}: unknown field{hint}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJob(f"not JSON: {error}") from None


def _shown(text: str) -> str:
    """Quoted, in one line that is not too long."""
    printable = "".join(c if c.isprintable() else "�" for c in text[:80])
    return f'"{printable}{"…" if len(text) > 80 else ""}"'
