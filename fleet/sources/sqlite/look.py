"""Looking for one message, or one group, in an embedded queue: read-only, with the file as it is.

There is no index on message ids, as only an operator asks for one: every body of the queue is looked at.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from fleet.clock import SystemClock
from fleet.errors import FleetError
from fleet.message import Message, decode
from fleet.sources.sqlite.clock import ahead_of_wall_ms
from fleet.sources.sqlite.file import parse_address, translated

_BUSY_S = 5.0
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


@dataclass(frozen=True, slots=True)
class AtSource:
    """One message as it stands in its queue."""

    broker_id: str
    message: Message | None
    """None where its body is no message."""
    group: str | None
    visible_at_ms: int
    leased: bool
    """Somebody took it and did not ack it. Until it is visible again, that is."""
    ahead: int
    """Older messages of its group: it is not shown before they are gone."""
    head_id: str
    """Of the oldest message of its group: its own, or its queue's where its body is no message."""
    head_visible_at_ms: int
    head_leased: bool


def find_message(uri: str, message_id: str) -> AtSource | None:
    """By its id, or by the queue's own id of it; the oldest of several."""
    plain = message_id.encode()
    escaped = json.dumps(message_id)[1:-1].encode()
    for found in _ask(uri, _BY_ID, (message_id, plain, escaped)):
        # The text may stand anywhere in a body.
        if found.broker_id == message_id or (found.message is not None and found.message.id == message_id):
            return found
    return None


def find_group(uri: str, group: str) -> AtSource | None:
    """The oldest message of a group."""
    return next(_ask(uri, _BY_GROUP, (group,)), None)


def _ask(uri: str, query: str, arguments: tuple[object, ...]) -> Iterator[AtSource]:
    address = parse_address(uri)
    if not address.path.exists():
        return
    with translated(address.path), closing(_open(address.path)) as db:
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


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_BUSY_S)


def _decoded(body: bytes) -> Message | None:
    try:
        return decode(body)
    except FleetError:
        return None
