"""A message of a topic: as it is published, as it is stored, and as it is pulled.

Stored, it is text: see `pack`. The header names only what cannot be known otherwise, so that most messages have none,
which costs one byte.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from fleet.broker.errors import DataLoss, InvalidArgument
from fleet.broker.spelling import in_our_words

MAX_MESSAGE_BYTES = 10 * 1024 * 1024
MAX_ATTRIBUTE_KEY_BYTES = 256
MAX_ATTRIBUTE_VALUE_BYTES = 1024
MAX_ORDERING_KEY_BYTES = 1024
"""The seed gives none; this is Pub/Sub's."""
METADATA_BYTES = 36 + 8
"""What counts beside data, attributes and ordering key: the id as text, and the publish time."""
RESERVED_PREFIXES = ("goog", "googclient_")

_NAMES = {name: name for name in ("data", "attributes", "ordering_key")}
# A message of the seed may carry what publishing sets anew, and a pulled one what only its showing had.
_SET_ANEW = {name: name for name in ("id", "publish_time", "delivery_attempt", "length", "ack_id")}
_CONTROLS = re.compile("[\x00-\x1f\x7f]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Message(msgspec.Struct, frozen=True):
    """To publish: `Message(b"…", {"kind": "order"}, ordering_key="user-1")`."""

    data: bytes = b""
    attributes: Mapping[str, str] = {}
    ordering_key: str | None = None


class PulledMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One showing of a message. How long it may be worked on belongs to its lease, not to it."""

    id: str
    data: bytes
    attributes: Mapping[str, str]
    publish_time: datetime
    """With its zone, which is UTC."""
    ordering_key: str | None = None
    delivery_attempt: int
    """1 at first, one more with each nack and each lapse."""
    ack_id: str

    @property
    def length(self) -> int:
        """Bytes of data."""
        return len(self.data)


# Publishing -----------------------------------------------------------------------------------------


def checked(messages: object) -> list[Message]:
    """All messages of one publish, or InvalidArgument that names the first wrong one: none is accepted then."""
    if isinstance(messages, Message | Mapping | str | bytes) or not isinstance(messages, Iterable):
        raise InvalidArgument(f"messages must be a list of messages, is {type(messages).__name__}")
    accepted = []
    for i, given in enumerate(messages):
        try:
            accepted.append(checked_message(given))
        except InvalidArgument as wrong:
            raise InvalidArgument(f"message {i}: {wrong.message}") from None
    return accepted


def checked_message(given: object) -> Message:
    """A message, or a mapping with its names in snake_case or the seed's camelCase."""
    if isinstance(given, Message):
        data, attributes, ordering_key = given.data, given.attributes, given.ordering_key
    else:
        named = in_our_words(given, _NAMES | _SET_ANEW, "a message")
        data, attributes = named.get("data", b""), named.get("attributes", {})
        ordering_key = named.get("ordering_key")
    data_bytes = _checked_data(data)
    size = METADATA_BYTES + len(data_bytes) + _check_attributes(attributes) + _check_ordering_key(ordering_key)
    if size > MAX_MESSAGE_BYTES:
        raise InvalidArgument(
            f"the message has {size} bytes with attributes and metadata, the limit is {MAX_MESSAGE_BYTES}"
        )
    # Copied: what the caller changes from now on is none of ours. An empty ordering key is none.
    return Message(data_bytes, dict(attributes), ordering_key or None)


def _checked_data(data: Any) -> bytes:
    if isinstance(data, str):
        raise InvalidArgument("data is text and must be bytes: encode it, data=text.encode()")
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidArgument(f"data must be bytes, is {type(data).__name__}")
    return bytes(data)


def _check_attributes(attributes: Any) -> int:
    """How many bytes they are."""
    if not isinstance(attributes, Mapping):
        raise InvalidArgument(f"attributes must be a mapping, is {type(attributes).__name__}")
    size = 0
    for key, value in attributes.items():
        if not isinstance(key, str):
            raise InvalidArgument(f"attribute key {key!r} must be text, is {type(key).__name__}")
        if not key:
            raise InvalidArgument("an attribute key is empty")
        if not isinstance(value, str):
            raise InvalidArgument(f"attribute {_shown(key)} must be text, is {type(value).__name__}")
        if key.startswith(RESERVED_PREFIXES):
            raise InvalidArgument(f"attribute key {_shown(key)} begins with {RESERVED_PREFIXES[0]}, which is reserved")
        size += _bytes_of(key, f"attribute key {_shown(key)}", MAX_ATTRIBUTE_KEY_BYTES)
        size += _bytes_of(value, f"the value of attribute {_shown(key)}", MAX_ATTRIBUTE_VALUE_BYTES)
    return size


def _check_ordering_key(ordering_key: Any) -> int:
    if ordering_key is None:
        return 0
    if not isinstance(ordering_key, str):
        raise InvalidArgument(f"ordering_key must be text, is {type(ordering_key).__name__}")
    if _CONTROLS.search(ordering_key):
        # They separate fields in our records, and mark what stands without a key.
        raise InvalidArgument("ordering_key holds a control character")
    return _bytes_of(ordering_key, "ordering_key", MAX_ORDERING_KEY_BYTES)


def _bytes_of(text: str, what: str, most: int) -> int:
    # Most text is ASCII, and Python knows that without looking.
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(f"{what} holds half a surrogate pair, which UTF-8 cannot write") from None
    if size > most:
        raise InvalidArgument(f"{what} has {size} bytes, the limit is {most}")
    return size


def _shown(key: str) -> str:
    return repr(key if len(key) <= 40 else key[:40] + "…")


# Stored ---------------------------------------------------------------------------------------------


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored beside the body. The short names are what Redis holds a million times."""

    attributes: Mapping[str, str] = msgspec.field(default_factory=dict, name="a")
    key: str = msgspec.field(default="", name="k")
    """The ordering key."""
    published_us: int = msgspec.field(default=0, name="t")
    """0: its number says it."""
    id: str = msgspec.field(default="", name="i")
    """Empty: it follows from its place (`names.message_id`). Kept once a message has moved."""
    origin: str = msgspec.field(default="", name="o")
    """Where a message that moved was before."""


_NO_HEADER = Header()
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Header).decode


def pack(header: Header, body: bytes) -> str:
    """As Redis holds it: `t` and text, or `b` and base64 of what is not text.

    In capitals if a header stands between: as JSON, behind its length and a colon.
    """
    try:
        kind, text = "t", body.decode()
    except UnicodeDecodeError:
        kind, text = "b", b64encode(body).decode()
    if header == _NO_HEADER:
        return kind + text
    head = _encode(header).decode()
    return f"{kind.upper()}{len(head)}:{head}{text}"


def unpack(stored: str) -> tuple[Header, bytes]:
    """DataLoss if it is not what `pack` writes."""
    try:
        kind, start, header = stored[0], 1, _NO_HEADER
        if kind in "TB":
            colon = stored.index(":")
            start = colon + 1 + int(stored[1:colon])
            header = _decode(stored[colon + 1 : start])
        if kind in "tT":
            return header, stored[start:].encode()
        if kind in "bB":
            return header, b64decode(stored[start:], validate=True)
    except (ValueError, IndexError, msgspec.DecodeError) as error:
        raise DataLoss(f"a stored message cannot be read: {error}") from error
    raise DataLoss(f"a stored message begins with {kind!r}")


def time_of(published_us: int) -> datetime:
    # By whole microseconds: a float of seconds would lose the last digit.
    return _EPOCH + timedelta(microseconds=published_us)
