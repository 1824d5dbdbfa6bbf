"""What the catalogue says of a queue of the SQS door."""

from __future__ import annotations

import msgspec

from fleet.broker.sqs.attributes import Attributes

PARTITIONS = "partitions"
FEATURES = frozenset({PARTITIONS})
"""What this door can do. A queue that needs more is not served by it: better none than one that breaks its order."""


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    attributes: Attributes
    incarnation: int
    version: int
    """Rises with each change of the attributes: a door that knows of others is refused."""
    created_s: int
    modified_s: int
    tags: dict[str, str] = {}
    needs: tuple[str, ...] = ()
    """What a door has to be able to do to serve it."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(QueueRecord).decode


def written(record: QueueRecord) -> str:
    return _encode(record).decode()


def read(text: str) -> QueueRecord:
    return _decode(text)
