"""Putting messages into an embedded queue: one transaction per call, on disk when it returns."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fleet.clock import Clock
from fleet.sources import ulid
from fleet.sources.base import Outgoing, never
from fleet.sources.sqlite import bell as file_bell
from fleet.sources.sqlite.file import ADD_HIDDEN, HEAVY_BYTES, SEGMENT_BITS, QueueFile

DEDUP_MS = 5 * 60 * 1000
_NAMES_PER_LOOKUP = 512


class SqlitePublisher:
    """Appends to one queue. Several publishers, in any number of processes, may share it."""

    def __init__(
        self, *, path: Path, queue: str, clock: Clock, busy_timeout_ms: int = 10_000, max_file_bytes: int | None = None
    ) -> None:
        self._file = QueueFile(
            path=path, queue=queue, clock=clock, busy_timeout_ms=busy_timeout_ms, max_file_bytes=max_file_bytes
        )

    async def open(self) -> None:
        await self._file.open()

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        refusals: list[str | None] = [never(_refusal(message)) for message in messages]
        accepted = [message for message, refusal in zip(messages, refusals, strict=True) if refusal is None]
        if accepted:
            await asyncio.wrap_future(self._file.submit(lambda db: self._append(db, accepted)))
        return refusals

    async def close(self) -> None:
        await self._file.close()

    def _append(self, db: sqlite3.Connection, messages: list[Outgoing]) -> None:
        with self._file.transaction(db):
            # Read under the lock: a batch that waited for it is as old as its commit, not as its call.
            now_ms = self._file.clock.now_ms()
            self._file.clock.note(db, now_ms)
            (seq,) = db.execute("SELECT next_seq FROM counter").fetchone()
            fresh = self._drop_repeated(db, messages, seq, now_ms)
            self._insert(db, fresh, seq, now_ms)
            db.execute("UPDATE counter SET next_seq = ?", (seq + len(fresh),))
        # After the commit, or a process that wakes would look too early and sleep again.
        file_bell.ring(self._file.path)
        # A send that was reported as done must survive a power cut, because nobody sends it again. With
        # synchronous=FULL, SQLite would wait for the disk with the lock held, and a consumer would wait with it.
        self._file.sync_log()

    def _insert(self, db: sqlite3.Connection, messages: list[Outgoing], seq: int, now_ms: int) -> None:
        queue = self._file.queue
        groups = self._known_groups(db, {message.group for message in messages if message.group})
        opened: list[tuple[int, int, int, str | None]] = []
        rows: list[tuple[int, int, int]] = []
        bodies: list[tuple[int, int, int, int, str, bytes]] = []
        delayed: Counter[int] = Counter()
        for message, broker_id in zip(messages, ulid.take(len(messages), now_ms), strict=True):
            visible_at_ms = now_ms
            if message.delay_ms:
                visible_at_ms += message.delay_ms
                delayed[visible_at_ms] += 1
            name = message.group or None
            group = groups.get(name) if name else None
            if group is None:
                group = seq
                opened.append((group, queue, visible_at_ms, name))
                if name:
                    groups[name] = group
            rows.append((group, seq, visible_at_ms))
            bodies.append((seq, queue, group, now_ms, broker_id, message.body))
            seq += 1
        # A group that was there already keeps its place in line: its head is an older message.
        db.executemany("INSERT INTO groups (grp, queue, ready_at_ms, name) VALUES (?, ?, ?, ?)", opened)
        db.executemany("INSERT INTO messages (grp, seq, visible_at_ms, turn) VALUES (?, ?, ?, 0)", rows)
        db.executemany(
            "INSERT INTO bodies (seq, queue, grp, sent_ms, broker_id, body) VALUES (?, ?, ?, ?, ?, ?)", bodies
        )
        db.executemany(ADD_HIDDEN, [(queue, until_ms, count) for until_ms, count in delayed.items()])
        live = Counter(row[0] >> SEGMENT_BITS for row in bodies)
        heavy = Counter(row[0] >> SEGMENT_BITS for row in bodies if len(row[5]) > HEAVY_BYTES)
        db.executemany(
            """INSERT INTO segments (queue, segment, live, heavy) VALUES (?, ?, ?, ?)
               ON CONFLICT DO UPDATE SET live = live + excluded.live, heavy = heavy + excluded.heavy""",
            [(queue, segment, count, heavy[segment]) for segment, count in live.items()],
        )

    def _known_groups(self, db: sqlite3.Connection, names: set[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for chunk, marks in _lookups(sorted(names)):
            lookup = f"SELECT name, grp FROM groups WHERE queue = ? AND name IN ({marks})"  # noqa: S608 (marks are ?)
            found.update(db.execute(lookup, (self._file.queue, *chunk)))
        return found

    def _drop_repeated(self, db: sqlite3.Connection, messages: list[Outgoing], seq: int, now_ms: int) -> list[Outgoing]:
        """Those whose dedup id was not seen in the last five minutes; the others count as accepted."""
        asked = {message.dedup_id for message in messages if message.dedup_id}
        if not asked:
            return messages
        queue = self._file.queue
        seen: set[str] = set()
        for chunk, marks in _lookups(sorted(asked)):
            lookup = f"SELECT dedup_id FROM dedup WHERE queue = ? AND until_ms > ? AND dedup_id IN ({marks})"  # noqa: S608
            seen.update(dedup_id for (dedup_id,) in db.execute(lookup, (queue, now_ms, *chunk)))
        fresh: list[Outgoing] = []
        remembered: list[tuple[int, int, str, int]] = []
        for message in messages:
            if message.dedup_id:
                if message.dedup_id in seen:
                    continue
                seen.add(message.dedup_id)
                remembered.append((seq + len(fresh), queue, message.dedup_id, now_ms + DEDUP_MS))
            fresh.append(message)
        # They lapse in the order of their numbers, so the oldest are at the front. Twice as many go as come.
        db.execute(
            """DELETE FROM dedup WHERE seq IN
               (SELECT seq FROM (SELECT seq, until_ms FROM dedup ORDER BY seq LIMIT ?) WHERE until_ms <= ?)""",
            (2 * len(asked), now_ms),
        )
        db.executemany("INSERT OR REPLACE INTO dedup (seq, queue, dedup_id, until_ms) VALUES (?, ?, ?, ?)", remembered)
        return fresh


def _refusal(message: Outgoing) -> str | None:
    for field, value in (("group", message.group), ("dedup id", message.dedup_id)):
        if value and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                return f"{field} is not valid text"
    if message.delay_ms < 0:
        return "delay is negative"
    return None


def _lookups(names: Iterable[str]) -> Iterator[tuple[list[str | None], str]]:
    """Names in chunks, with their placeholders. Few different lengths, so that the prepared statements are reused."""
    rest: list[str | None] = list(names)
    while rest:
        chunk, rest = rest[:_NAMES_PER_LOOKUP], rest[_NAMES_PER_LOOKUP:]
        length = 1 << (len(chunk) - 1).bit_length()
        yield chunk + [None] * (length - len(chunk)), ",".join("?" * length)  # NULL is in no list
