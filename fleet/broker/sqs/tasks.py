"""What is to be done for a queue, whoever does it: it stands in the catalogue until it is done."""

from __future__ import annotations

import msgspec

from fleet.broker.sqs.records import QueueRecord

RUNNING, CANCELLING, CANCELLED, COMPLETED, FAILED = "RUNNING", "CANCELLING", "CANCELLED", "COMPLETED", "FAILED"


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    handle: str
    status: str
    started_ms: int
    to_move: int
    target: str = ""
    """'': each goes back to where it came from."""
    moved: int = 0
    a_second: int = 0
    """0: as fast as it goes."""
    failure: str = ""


class Tasks(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of one queue."""

    latest: tuple[Task, ...] = ()
    """Those that move messages, the latest first."""
    deleted: tuple[QueueRecord, ...] = ()
    """Queues of that name that are gone and not cleared yet, with the incarnation that callers must know from now."""


_NONE = Tasks()
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Tasks).decode


def read(text: str) -> Tasks:
    return _decode(text) if text else _NONE


def written(tasks: Tasks) -> str:
    """'' where there are none: nothing has to stand for that."""
    return "" if tasks == _NONE else _encode(tasks).decode()
