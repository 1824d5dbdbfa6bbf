"""The journal: what a producer sent and what an endpoint took, one JSON object per line, for `fleet verify`.

    {"kind":"sent","id","group","seq","t","pool"}               the queue accepted it
    {"kind":"start","id","group","epoch","status","t","pool"}   a request began (its status is null)
    {"kind":"end","id","group","epoch","status","t","pool"}     it ended, with the status that it was answered

`pool` is left out if it is not known, as in journals of older versions. `t` is in milliseconds since 1970. `seq` rises
with the order in which one journal's messages were sent.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from fleet.errors import FleetError


class SentRecord(msgspec.Struct, tag_field="kind", tag="sent", gc=False):
    id: str
    group: str | None
    seq: int
    t: float
    pool: str | UnsetType = UNSET


class Start(msgspec.Struct, tag_field="kind", tag="start", gc=False):
    id: str
    group: str | None
    epoch: int | None
    t: float
    status: None = None
    pool: str | UnsetType = UNSET


class End(msgspec.Struct, tag_field="kind", tag="end", gc=False):
    id: str
    group: str | None
    epoch: int | None
    status: int
    t: float
    pool: str | UnsetType = UNSET


Record = SentRecord | Start | End

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode


def _wall_ms() -> float:
    return time.time() * 1000


class Journal:
    """Appends whole lines: every write is one system call of complete records on an O_APPEND descriptor.

    A record is in the file after `flush`, or as soon as `buffer_bytes` have piled up (0: at once).
    """

    def __init__(self, path: str | Path, *, buffer_bytes: int = 0, now_ms: Callable[[], float] = _wall_ms) -> None:
        self._now_ms = now_ms
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._buffer_bytes = buffer_bytes
        self._buffer = bytearray()
        _cut_torn_line(self._fd)

    def sent(self, message_id: str, group: str | None, seq: int, *, pool: str = "") -> None:
        self._add(SentRecord(message_id, group, seq, self._now_ms(), pool or UNSET))

    def start(self, message_id: str, group: str | None, *, epoch: int | None, pool: str = "") -> None:
        self._add(Start(message_id, group, epoch, self._now_ms(), pool=pool or UNSET))

    def end(self, message_id: str, group: str | None, *, epoch: int | None, status: int, pool: str = "") -> None:
        self._add(End(message_id, group, epoch, status, self._now_ms(), pool or UNSET))

    def flush(self) -> None:
        if self._buffer:
            lines = bytes(self._buffer)
            self._buffer.clear()
            if os.write(self._fd, lines) != len(lines):
                raise FleetError("the journal's disk is full")

    def close(self) -> None:
        if self._fd >= 0:
            self.flush()
            os.close(self._fd)
            self._fd = -1

    def _add(self, record: Record) -> None:
        self._buffer += _encode(record)
        self._buffer += b"\n"
        if len(self._buffer) > self._buffer_bytes:
            self.flush()


def read(path: str | Path) -> Iterator[Record]:
    """The records of a journal. A torn last line, left by a writer that was killed, is skipped; any other bad line is
    an error."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield _decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                if not line.endswith(b"\n"):
                    return
                raise FleetError(f"{path}, line {number} is not a journal record: {error}") from error


def _cut_torn_line(fd: int) -> None:
    """A record appended after half a line would be lost with it."""
    end = os.fstat(fd).st_size
    position = end
    while position > 0:
        start = max(0, position - 4096)
        newline = os.pread(fd, position - start, start).rfind(b"\n")
        if newline >= 0:
            position = start + newline + 1
            break
        position = start
    if position != end:
        os.ftruncate(fd, position)
