"""The statements that move a message of an embedded queue: lease, delete, show again, extend.

All of it runs on the file's thread, and each call is one transaction. Statements work on sets, and what
concerns a group is done once per group, so the cost depends on what is returned and not on what waits.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fleet.sources.base import Received
from fleet.sources.sqlite.file import ADD_HIDDEN, SEGMENT_BITS, QueueFile

MOST_IN_A_ROW = 32
FEWEST_GROUPS = 32
_LARGEST = 2**63 - 1

# The front of the line, and at most `share` messages of each group in it. Nothing is sorted: the line is an index, and
# the messages lie in the order of their groups. Invisible ones come without their body.
_FRONT = """
SELECT g.grp, g.name, m.seq, m.visible_at_ms, m.turn, b.broker_id, CASE WHEN m.visible_at_ms <= :now THEN b.body END
  FROM groups g INDEXED BY line CROSS JOIN messages m ON m.grp = g.grp CROSS JOIN bodies b ON b.seq = m.seq
 WHERE g.queue = :queue AND g.ready_at_ms <= :now
   AND m.seq <= coalesce((SELECT n.seq FROM messages n WHERE n.grp = g.grp ORDER BY n.seq LIMIT 1 OFFSET :share - 1),
                         9223372036854775807)
 ORDER BY g.ready_at_ms, g.grp, m.seq"""
_MORE = """
SELECT m.seq, m.visible_at_ms, m.turn, b.broker_id, b.body FROM messages m CROSS JOIN bodies b ON b.seq = m.seq
 WHERE m.grp = ? AND m.seq > ? ORDER BY m.seq LIMIT ?"""
_LEASE = """
UPDATE messages SET visible_at_ms = ?, turn = (turn + 1) | 1 WHERE grp = ? AND seq BETWEEN ? AND ?"""

_STILL_HELD = """
SELECT t.place, t.grp, t.seq, t.turn, m.visible_at_ms
  FROM temp.touched t CROSS JOIN messages m ON m.grp = t.grp AND m.seq = t.seq AND m.turn = t.turn"""
_CLOSE_EMPTY_GROUPS = """
DELETE FROM groups WHERE grp IN (SELECT grp FROM temp.touched)
   AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.grp = groups.grp)"""
_COUNT_DOWN = """
UPDATE segments SET live = live - ? WHERE queue = ? AND segment = ? RETURNING live, heavy"""
# A group that was not takeable until now goes to the end of the line, so that a deep one cannot keep others waiting.
_LINE_UP = """
UPDATE groups SET ready_at_ms = max(:now, (SELECT visible_at_ms FROM messages m WHERE m.grp = groups.grp
                                           ORDER BY m.seq LIMIT 1))
 WHERE grp IN (SELECT grp FROM temp.touched)"""


@dataclass(slots=True)
class _Run:
    """The messages that a poll takes from one group: all that lie between `first` and `last`."""

    grp: int
    name: str | None
    first: int
    last: int
    count: int = 1
    ended: bool = False
    """The next message is known to be invisible."""


@dataclass(frozen=True, slots=True)
class _Touch:
    place: int
    grp: int
    seq: int
    turn: int
    visible_at_ms: int


class Leases:
    """What can be done with the messages of one queue."""

    def __init__(self, *, file: QueueFile) -> None:
        self._file = file

    def ready_at_ms(self, db: sqlite3.Connection) -> int | None:
        """When the front of the line is takeable; reads only, so an idle poll keeps nobody waiting."""
        found = db.execute(
            "SELECT ready_at_ms FROM groups WHERE queue = ? ORDER BY ready_at_ms LIMIT 1", (self._file.queue,)
        ).fetchone()
        return None if found is None else int(found[0])

    def take(self, db: sqlite3.Connection, want: int, now: Callable[[], int], visibility_ms: int) -> list[Received]:
        with self._file.transaction(db):
            now_ms = now()  # under the lock: a lease counts from when it begins
            self._file.clock.note(db, now_ms)
            until_ms = now_ms + visibility_ms
            received: list[Received] = []
            # Of each group several in a row, which is cheap, but never so many that few groups fill the batch:
            # groups are what can be delivered at the same time.
            share = max(1, min(MOST_IN_A_ROW, want // FEWEST_GROUPS))
            runs = self._take_front(db, received, want, share, now_ms)
            growing = [run for run in runs if run.count == share and not run.ended]
            while growing and len(received) < want:
                more = max(1, (want - len(received)) // len(growing))
                for run in growing:
                    self._take_more(db, received, run, min(more, want - len(received)), now_ms)
                growing = [run for run in growing if not run.ended]
            queue = self._file.queue
            db.executemany(_LEASE, [(until_ms, run.grp, run.first, run.last) for run in runs])
            db.executemany("UPDATE groups SET ready_at_ms = ? WHERE grp = ?", [(until_ms, run.grp) for run in runs])
            db.execute("DELETE FROM hidden WHERE queue = ? AND until_ms <= ?", (queue, now_ms))
            if received:
                db.execute(ADD_HIDDEN, (queue, until_ms, len(received)))
        return received

    def delete(self, db: sqlite3.Connection, handles: Sequence[str], now_ms: int) -> list[bool]:
        with self._file.transaction(db):
            touches = self._still_held(db, handles)
            db.execute("DELETE FROM messages WHERE (grp, seq) IN (SELECT grp, seq FROM temp.touched)")
            db.execute(_CLOSE_EMPTY_GROUPS)
            db.execute(_LINE_UP, {"now": now_ms})
            self._move_hidden(db, touches, [], now_ms)
            self._drop_bodies(db, touches)
            answers = _answers(handles, touches)
            self._count_deleted_before(db, handles, answers)
        return answers

    def _count_deleted_before(self, db: sqlite3.Connection, handles: Sequence[str], answers: list[bool]) -> None:
        """Acks are idempotent: only for a message that is still here, under another handle, the answer is False."""
        for place, grp, seq, _ in _parse(self._file.mark, handles):
            if not answers[place]:
                found = db.execute("SELECT 1 FROM messages WHERE grp = ? AND seq = ?", (grp, seq)).fetchone()
                answers[place] = found is None

    def show_again(
        self, db: sqlite3.Connection, handles: Sequence[str], delays_ms: Sequence[int], now_ms: int
    ) -> list[bool]:
        """End the deliveries, and show the messages again after their delays."""
        return self._show_at(db, handles, [now_ms + max(0, delay_ms) for delay_ms in delays_ms], now_ms, turn_step=1)

    def take_back(self, db: sqlite3.Connection, handles: Sequence[str], now_ms: int) -> list[bool]:
        """Undo a delivery that nobody has seen: it does not count as one."""
        return self._show_at(db, handles, [now_ms] * len(handles), now_ms, turn_step=-1)

    def extend(self, db: sqlite3.Connection, handles: Sequence[str], visibility_ms: int, now_ms: int) -> list[bool]:
        return self._show_at(db, handles, [now_ms + max(0, visibility_ms)] * len(handles), now_ms, turn_step=0)

    def _show_at(
        self, db: sqlite3.Connection, handles: Sequence[str], until_ms: Sequence[int], now_ms: int, turn_step: int
    ) -> list[bool]:
        with self._file.transaction(db):
            touches = self._still_held(db, handles)
            db.executemany(
                "UPDATE messages SET visible_at_ms = ?, turn = turn + ? WHERE grp = ? AND seq = ?",
                [(until_ms[touch.place], turn_step, touch.grp, touch.seq) for touch in touches],
            )
            db.execute(_LINE_UP, {"now": now_ms})
            self._move_hidden(db, touches, (until_ms[touch.place] for touch in touches), now_ms)
        return _answers(handles, touches)

    def _take_front(
        self, db: sqlite3.Connection, received: list[Received], want: int, share: int, now_ms: int
    ) -> list[_Run]:
        runs: list[_Run] = []
        run: _Run | None = None
        mark = self._file.mark
        rows = db.execute(_FRONT, {"queue": self._file.queue, "now": now_ms, "share": share})
        for grp, name, seq, visible_at_ms, turn, broker_id, body in rows:
            if run is not None and run.grp == grp:
                if run.ended:
                    continue
                if visible_at_ms > now_ms:
                    run.ended = True
                    continue
                run.last = seq
                run.count += 1
            else:
                run = _Run(grp, name, seq, seq)
                runs.append(run)
            received.append(_received(mark, grp, seq, turn, broker_id, body, name))
            if len(received) >= want:
                break
        rows.close()
        return runs

    def _take_more(self, db: sqlite3.Connection, received: list[Received], run: _Run, want: int, now_ms: int) -> None:
        taken = 0
        mark = self._file.mark
        rows = db.execute(_MORE, (run.grp, run.last, want))
        for seq, visible_at_ms, turn, broker_id, body in rows:
            if visible_at_ms > now_ms:
                break
            received.append(_received(mark, run.grp, seq, turn, broker_id, body, run.name))
            run.last = seq
            taken += 1
        rows.close()
        run.count += taken
        run.ended = taken < want

    def _still_held(self, db: sqlite3.Connection, handles: Sequence[str]) -> list[_Touch]:
        """Fill `touched` with what these handles still hold, each message once."""
        db.execute("DELETE FROM temp.touched")
        asked = _parse(self._file.mark, handles)
        db.executemany("INSERT OR IGNORE INTO temp.touched (place, grp, seq, turn) VALUES (?, ?, ?, ?)", asked)
        touches = [_Touch(*row) for row in db.execute(_STILL_HELD)]
        if len(touches) < len(asked):
            # Leave out the stale ones, or their groups would lose their place in line.
            db.execute("DELETE FROM temp.touched")
            db.executemany(
                "INSERT INTO temp.touched (place, grp, seq, turn) VALUES (?, ?, ?, ?)",
                [(touch.place, touch.grp, touch.seq, touch.turn) for touch in touches],
            )
        return touches

    def _drop_bodies(self, db: sqlite3.Connection, touches: list[_Touch]) -> None:
        queue = self._file.queue
        singly: set[int] = set()
        gone = Counter(touch.seq >> SEGMENT_BITS for touch in touches)
        for segment, count in gone.items():
            live, heavy = db.execute(_COUNT_DOWN, (count, queue, segment)).fetchall()[0]
            if live <= 0:
                first = segment << SEGMENT_BITS
                last = first + (1 << SEGMENT_BITS) - 1
                db.execute("DELETE FROM bodies WHERE seq BETWEEN ? AND ? AND queue = ?", (first, last, queue))
                db.execute("DELETE FROM segments WHERE queue = ? AND segment = ?", (queue, segment))
            elif heavy:
                singly.add(segment)
        if singly:
            db.executemany(
                "DELETE FROM bodies WHERE seq = ?",
                [(touch.seq,) for touch in touches if touch.seq >> SEGMENT_BITS in singly],
            )

    def _move_hidden(self, db: sqlite3.Connection, touches: list[_Touch], until_ms: Iterable[int], now_ms: int) -> None:
        queue = self._file.queue
        changes = Counter(until for until in until_ms if until > now_ms)
        changes.subtract(touch.visible_at_ms for touch in touches if touch.visible_at_ms > now_ms)
        db.executemany(ADD_HIDDEN, [(queue, until, count) for until, count in changes.items() if count])
        db.execute("DELETE FROM hidden WHERE queue = ? AND until_ms <= ?", (queue, now_ms))


def _received(mark: str, grp: int, seq: int, turn: int, broker_id: str, body: bytes, name: str | None) -> Received:
    leased = (turn + 1) | 1
    return Received(broker_id, f"{mark}.{grp}.{seq}.{leased}", body, name, (leased + 1) >> 1)


def _parse(mark: str, handles: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """(place, grp, seq, turn) of the handles that may belong to this queue."""
    parsed: list[tuple[int, int, int, int]] = []
    for place, handle in enumerate(handles):
        try:
            of, grp, seq, turn = handle.split(".")
            if of == mark:
                key = (place, int(grp), int(seq), int(turn))
                if max(key) <= _LARGEST:
                    parsed.append(key)
        except ValueError:
            continue
    return parsed


def _answers(handles: Sequence[str], touches: list[_Touch]) -> list[bool]:
    answers = [False] * len(handles)
    for touch in touches:
        answers[touch.place] = True
    return answers
