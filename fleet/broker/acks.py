"""Ack ids: text that says which showing of which message it acks. Nothing is remembered for one, so nothing leaks.

A showing is a message's number and how often it was shown, so a later showing makes the older ack ids invalid (BR-018).
The incarnation does the same for a subscription that was deleted and made anew under its name.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import crc32

import msgspec

from fleet.broker.errors import InvalidAckId

_VERSION = b"\x01"
_SUM_BYTES = 4
_MOST_CHARACTERS = 4096


class Showing(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    subscription: str
    incarnation: int
    number: int
    count: int
    ordering_key: str = ""
    """Its lane, where the subscription keeps order; else empty."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Showing)


def encode(showing: Showing) -> str:
    told = _VERSION + _encoder.encode(showing)
    # With a sum: a character that was lost or changed must not ack another message.
    return urlsafe_b64encode(told + crc32(told).to_bytes(_SUM_BYTES, "big")).rstrip(b"=").decode()


def decode(ack_id: object) -> Showing:
    """InvalidAckId for whatever `encode` did not write."""
    try:
        return _decoded(ack_id)
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidAckId(_short(ack_id)) from error


def _decoded(ack_id: object) -> Showing:
    if not isinstance(ack_id, str) or len(ack_id) > _MOST_CHARACTERS:
        raise ValueError("not an ack id")
    written = urlsafe_b64decode(ack_id + "=" * (-len(ack_id) % 4))
    showing = _decoder.decode(written[len(_VERSION) : -_SUM_BYTES])
    # Version, sum, characters that base64 overlooks: one showing has one ack id.
    if encode(showing) != ack_id:
        raise ValueError("not how it was written")
    return showing


def _short(ack_id: object) -> str:
    text = str(ack_id)
    return text if len(text) <= 100 else f"{text[:100]}…"
