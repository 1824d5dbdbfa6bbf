"""A message of the SQS door as Redis holds it: text, with a header where it is more than its body.

`t` and the body; or `T`, the length of a JSON header, a colon, the header, the body.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fleet.broker.errors import DataLoss
from fleet.broker.sqs.message import Sent


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """The short names are what Redis holds a million times."""

    attributes: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict, name="a")
    """A binary value is in base64 here."""
    trace: str = msgspec.field(default="", name="t")
    group: str = msgspec.field(default="", name="g")
    """Of a standard queue; an ordered one's is its lane."""
    dedup_id: str = msgspec.field(default="", name="d")
    id: str = msgspec.field(default="", name="i")
    """Kept once it has moved; before that it follows from its place."""
    sender: str = msgspec.field(default="", name="s")


_NONE = Header()
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Header).decode


def pack(header: Header, body: str) -> str:
    if header == _NONE:
        return "t" + body
    head = _encode(header).decode()
    return f"T{len(head)}:{head}{body}"


def unpack(stored: str) -> tuple[Header, str]:
    if stored[0] == "t":
        return _NONE, stored[1:]
    try:
        colon = stored.index(":")
        start = colon + 1 + int(stored[1:colon])
        return _decode(stored[colon + 1 : start]), stored[start:]
    except (ValueError, msgspec.DecodeError) as error:
        raise DataLoss(f"a stored message cannot be read: {error}") from error


def header_of(sent: Sent, *, fifo: bool) -> Header:
    if not (sent.attributes or sent.trace or sent.group or sent.dedup_id):
        return _NONE
    return Header(
        attributes=sent.attributes,
        trace=sent.trace,
        group="" if fifo else sent.group,
        dedup_id=sent.dedup_id,
    )
