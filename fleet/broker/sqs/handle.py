"""Receipt handles: one showing of a message, written so that only the queue that gave it takes it back.

version, digest of the queue's name, incarnation, partition, number, count, when received, group, checksum; base64url.
A handle is no secret and no proof: whoever may call the queue may act on its messages.
"""

from __future__ import annotations

import struct
from binascii import Error, a2b_base64, b2a_base64, crc32
from functools import lru_cache
from hashlib import blake2b

import msgspec

from fleet.broker.sqs import errors

VERSION = 1
_FIELDS = struct.Struct(">B8sQHQIQ")
_SUM = struct.Struct(">I")
_LEAST = _FIELDS.size + _SUM.size
_TO_URL = bytes.maketrans(b"+/", b"-_")
_TO_STANDARD = bytes.maketrans(b"-_+/", b"+/!!")
"""The two characters that base64url has not stay wrong."""
_LONGEST = 1024
"""Characters; a group is at most 128."""


class Handle(msgspec.Struct, frozen=True):
    incarnation: int
    partition: int
    number: int
    count: int
    received_ms: int
    group: str = ""


def encode(handle: Handle, *, queue: str) -> str:
    fields = _FIELDS.pack(
        VERSION,
        _digest(queue),
        handle.incarnation,
        handle.partition,
        handle.number,
        handle.count,
        handle.received_ms,
    )
    content = fields + handle.group.encode()
    # A handle that was cut off would name a shorter group, which is another one.
    text = b2a_base64(content + _SUM.pack(crc32(content)), newline=False)
    return text.translate(_TO_URL).rstrip(b"=").decode()


def decode(text: str, *, queue: str, incarnation: int, partitions: int) -> Handle:
    """SqsError for garbage, for another version, queue or incarnation, and for a partition that the queue has not."""
    try:
        raw = a2b_base64(text.encode().translate(_TO_STANDARD) + b"=" * (-len(text) % 4), strict_mode=True)
        if len(text) > _LONGEST or len(raw) < _LEAST or _SUM.unpack(raw[-4:])[0] != crc32(raw[:-4]):
            raise errors.invalid_receipt_handle(text)
        version, digest, of_incarnation, partition, number, count, received_ms = _FIELDS.unpack_from(raw)
        group = raw[_FIELDS.size : -_SUM.size].decode()
    except (Error, ValueError) as error:
        raise errors.invalid_receipt_handle(text) from error
    known = version == VERSION and digest == _digest(queue) and of_incarnation == incarnation
    if not known or partition >= max(1, partitions):
        raise errors.invalid_receipt_handle(text)
    return Handle(of_incarnation, partition, number, count, received_ms, group)


@lru_cache(maxsize=4096)
def _digest(queue: str) -> bytes:
    return blake2b(queue.encode(), digest_size=8).digest()
