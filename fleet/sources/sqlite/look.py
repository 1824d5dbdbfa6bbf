"""Looking into an embedded queue: read-only, with the file as it is.

There is no index on message ids, because only an operator asks for one: every body in the queue is searched.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from fleet.clock import SystemClock
from fleet.errors import FleetError
from fleet.message import Message, decode
from fleet.sources.adapter import AtSource
from fleet.sources.sqlite.address import QueueAddress
from fleet.sources.sqlite.clock import ahead_of_wall_ms
from fleet.sources.sqlite.file import translated
from fleet.state.connect import Client

_BUSY_S, _SAMPLE_BUSY_S = 5.0, 0.5
"""How long to wait for a writer. A sample waits less: many queues are sampled in little time."""
_COLUMNS = """
SELECT b.broker_id, b.body, g.name, m.visible_at_ms, m.turn,
       (SELECT count(*) FROM messages o WHERE o.grp = m.grp AND o.seq < m.seq),
       h.broker_id, h.body, hm.visible_at_ms, hm.turn
  FROM queues q CROSS JOIN {path}
  JOIN messages hm ON hm.grp = m.grp AND hm.seq = (SELECT min(o.seq) FROM messages o WHERE o.grp = m.grp)
  JOIN bodies h ON h.seq = hm.seq
 WHERE q.name = ? AND """
_BY_ID = (
    _COLUMNS.format(
        path="""bodies b ON b.queue = q.queue
  JOIN messages m ON m.grp = b.grp AND m.seq = b.seq JOIN groups g ON g.grp = m.grp"""
    )
    + "(b.broker_id = ? OR instr(b.body, ?) OR instr(b.body, ?)) ORDER BY b.seq"
)
_BY_GROUP = (
    _COLUMNS.format(
        path="""groups g ON g.queue = q.queue
  JOIN messages m ON m.grp = g.grp JOIN bodies b ON b.seq = m.seq"""
    )
    + "g.name = ? ORDER BY m.seq LIMIT 1"
)
# What was given back last comes first: its groups are those that are ready last.
_BODIES = """
SELECT b.broker_id, b.body
  FROM queues q CROSS JOIN groups g ON g.queue = q.queue
  CROSS JOIN messages m ON m.grp = g.grp
  JOIN bodies b ON b.seq = m.seq
 WHERE q.name = ? ORDER BY g.ready_at_ms DESC LIMIT ?"""


async def find(_client: Client, address: QueueAddress, subject: str) -> AtSource | None:
    """A message by its id or the queue's, else the oldest of a group."""
    return await asyncio.to_thread(_find, address, subject)


def _find(address: QueueAddress, subject: str) -> AtSource | None:
    return find_message(address, subject) or find_group(address, subject)


async def bodies(
    _client: Client, address: QueueAddress, most: int, most_bytes: int
) -> AsyncIterator[tuple[str, bytes]]:
    """Read in one go, on another thread."""
    for found in await asyncio.to_thread(_bodies, address, most, most_bytes):
        yield found


def _bodies(address: QueueAddress, most: int, most_bytes: int) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    if not address.path.exists():
        return found
    with translated(address.path), closing(_open(address.path, _SAMPLE_BUSY_S)) as db:
        for broker_id, body in db.execute(_BODIES, (address.queue, most)):
            found.append((broker_id, body))
            most_bytes -= len(body)
            if most_bytes <= 0:
                break
    return found


def find_message(address: QueueAddress, message_id: str) -> AtSource | None:
    """By its own id, or by the queue's id for it; the oldest of several."""
    plain = message_id.encode()
    escaped = json.dumps(message_id)[1:-1].encode()
    for found in _ask(address, _BY_ID, (message_id, plain, escaped)):
        # The text may stand anywhere in a body.
        if found.broker_id == message_id or (found.message is not None and found.message.id == message_id):
            return found
    return None


def find_group(address: QueueAddress, group: str) -> AtSource | None:
    """The oldest message of a group."""
    return next(_ask(address, _BY_GROUP, (group,)), None)


def _ask(address: QueueAddress, query: str, arguments: tuple[object, ...]) -> Iterator[AtSource]:
    if not address.path.exists():
        return
    with translated(address.path), closing(_open(address.path, _BUSY_S)) as db:
        ahead_ms = ahead_of_wall_ms(db, SystemClock())
        for row in db.execute(query, (address.queue, *arguments)):
            (
                broker_id,
                body,
                group,
                visible_at_ms,
                turn,
                ahead,
                first_id,
                first_body,
                first_visible_at_ms,
                first_turn,
            ) = row
            first = _decoded(first_body)
            yield AtSource(
                broker_id, _decoded(body), group, visible_at_ms - ahead_ms, bool(turn & 1), ahead,
                first.id if first is not None else first_id, first_visible_at_ms - ahead_ms,
                bool(first_turn & 1),
            )  # fmt: skip


def _open(path: Path, busy_s: float) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=busy_s)


def _decoded(body: bytes) -> Message | None:
    try:
        return decode(body)
    except FleetError:
        return None
