"""The file that holds embedded queues: its tables, its connections, its errors.

One file holds any number of queues. Every message belongs to a group; one that was sent without is a
nameless group of one. A message has two rows, because they change in different ways:

- `messages`: order and lease, twenty bytes, by group. A group's next messages are neighbours, so taking
  and deleting a run of them touches a page or two, whatever the backlog.
- `bodies`: what never changes, in the order of sending. It goes when its whole segment is dead, as one
  range; one by one, the bodies of an ack would lie on as many pages as there are messages.

`groups.ready_at_ms` is the group's place in line: when its oldest message becomes (or became) takeable.
It never lies before that message's `visible_at_ms`; a poll reads the line from the front and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from fleet.clock import Clock
from fleet.errors import SourceError, SourceFull, SourceUnavailable
from fleet.sources.sqlite.clock import FileClock

T = TypeVar("T")

_APPLICATION_ID = 0x464C5431
_SCHEMA_VERSION = 1
SEGMENT_BITS = 8
"""256 numbers per segment: few enough that a message that stays keeps little alive, enough to delete in bulk."""
HEAVY_BYTES = 4096
_CACHE_KIB = 64 * 1024
_CHECKPOINT_PAGES = 16_000
"""64 MB: with many groups the same pages change in every commit, and are copied back once for all of them."""

_SCHEMA = (
    # The next number of a message. Kept here, not taken from the highest row: a number is never used again.
    "CREATE TABLE counter (next_seq INTEGER NOT NULL)",
    "INSERT INTO counter VALUES (1)",
    # `mark` is random and part of every handle: one of another queue, or of a deleted file, does not match here.
    "CREATE TABLE queues (queue INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, mark TEXT NOT NULL)",
    # A group is numbered by the message that opened it, and its row goes with its last message.
    """CREATE TABLE groups (grp INTEGER PRIMARY KEY, queue INTEGER NOT NULL, ready_at_ms INTEGER NOT NULL,
                            name TEXT)""",
    "CREATE INDEX line ON groups (queue, ready_at_ms)",
    "CREATE UNIQUE INDEX named ON groups (queue, name) WHERE name IS NOT NULL",
    # `turn` is even while nobody has the message and odd while somebody does: a lease makes it the next
    # odd number, a nack the next even one. So (turn + 1) / 2 is the receive count, and turn in the handle
    # tells one delivery from another.
    """CREATE TABLE messages (grp INTEGER NOT NULL, seq INTEGER NOT NULL, visible_at_ms INTEGER NOT NULL,
                              turn INTEGER NOT NULL, PRIMARY KEY (grp, seq)) WITHOUT ROWID""",
    """CREATE TABLE bodies (seq INTEGER PRIMARY KEY, queue INTEGER NOT NULL, grp INTEGER NOT NULL,
                            sent_ms INTEGER NOT NULL, broker_id TEXT NOT NULL, body BLOB NOT NULL)""",
    # How many messages of a stretch of numbers are left. `heavy` ones had a large body: in such a segment a
    # body goes with its message, or one message that stays would keep megabytes of dead neighbours.
    """CREATE TABLE segments (queue INTEGER NOT NULL, segment INTEGER NOT NULL, live INTEGER NOT NULL,
                              heavy INTEGER NOT NULL, PRIMARY KEY (queue, segment)) WITHOUT ROWID""",
    "CREATE TABLE dedup (seq INTEGER PRIMARY KEY, queue INTEGER NOT NULL, dedup_id TEXT NOT NULL, until_ms INTEGER)",
    "CREATE UNIQUE INDEX deduped ON dedup (queue, dedup_id)",
    # How many messages become visible when, so that nobody has to count them. Rows in the past mean nothing.
    """CREATE TABLE hidden (queue INTEGER NOT NULL, until_ms INTEGER NOT NULL, messages INTEGER NOT NULL,
                            PRIMARY KEY (queue, until_ms)) WITHOUT ROWID""",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
)

# The messages that a call of the source is about. The turn is part of the key: one call may bring an old handle and the
# current one.
TOUCHED = """CREATE TEMP TABLE touched (grp INTEGER, seq INTEGER, turn INTEGER, place INTEGER,
                                        PRIMARY KEY (grp, seq, turn)) WITHOUT ROWID"""
ADD_HIDDEN = """INSERT INTO hidden (queue, until_ms, messages) VALUES (?, ?, ?)
                ON CONFLICT DO UPDATE SET messages = messages + excluded.messages"""


class QueueFile:
    """One connection to the file, on a thread of its own, for one queue."""

    def __init__(
        self,
        *,
        path: Path,
        queue: str,
        clock: Clock,
        busy_timeout_ms: int = 10_000,
        max_file_bytes: int | None = None,
    ) -> None:
        self.path = path
        self.clock = FileClock(clock)
        self._queue_name = queue
        self._busy_timeout_ms = busy_timeout_ms
        self._max_file_bytes = max_file_bytes
        self._thread: ThreadPoolExecutor | None = None
        self._db: sqlite3.Connection | None = None
        self.queue = 0
        self.mark = ""

    async def open(self) -> None:
        """Open the file, and make it and its folder if they are missing."""
        self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix=f"sqlite-{self._queue_name}")
        try:
            await asyncio.wrap_future(self._thread.submit(self._open))
        except BaseException:
            self._stop()
            raise

    def submit(self, job: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Run a job on the thread, after those submitted before."""
        if self._thread is None:
            raise SourceUnavailable(f"queue file {self.path} is not open")
        return self._thread.submit(self._run, job)

    async def close(self) -> None:
        """Close after the jobs that were submitted before."""
        closed = self._stop()
        if closed is not None:
            await asyncio.wrap_future(closed)

    def _stop(self) -> Future[None] | None:
        thread, self._thread = self._thread, None
        if thread is None:
            return None
        closed = thread.submit(self._close)
        thread.shutdown(wait=False)
        return closed

    @contextlib.contextmanager
    def transaction(self, db: sqlite3.Connection) -> Iterator[None]:
        """All or nothing, and alone: the write lock is taken first, so nothing read inside can be out of date."""
        self._begin(db)
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:  # SQLite rolls back by itself after some errors, such as a full disk
                db.execute("ROLLBACK")
            raise

    def sync_log(self) -> None:
        """Wait until what is committed is on disk. What is not in the log any more has been synced on its way out."""
        try:
            log = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            os.fdatasync(log)
        finally:
            os.close(log)

    def _begin(self, db: sqlite3.Connection) -> None:
        # SQLite's own wait backs off to steps of 100 ms, in which a busy neighbour takes the lock again and
        # again. A lock lasts a few milliseconds here: ask anew every time its first, short steps are over.
        give_up = time.monotonic() + self._busy_timeout_ms / 1000
        db.execute("PRAGMA busy_timeout = 3")
        try:
            while True:
                try:
                    db.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError as error:
                    if not _is_busy(error) or time.monotonic() > give_up:
                        raise
        finally:
            db.execute(f"PRAGMA busy_timeout = {self._busy_timeout_ms}")

    def _run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        if self._db is None:
            raise SourceUnavailable(f"queue file {self.path} is not open")
        with translated(self.path):
            return job(self._db)

    def _open(self) -> None:
        if self._db is not None:
            return
        with translated(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self.path, timeout=self._busy_timeout_ms / 1000, isolation_level=None)
            try:
                self._prepare(db)
            except BaseException:
                db.close()
                raise
            self._db = db

    def _prepare(self, db: sqlite3.Connection) -> None:
        # No commit waits for the disk: a lost ack is only a duplicate, and a publisher waits for the disk afterwards.
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        db.execute(f"PRAGMA journal_size_limit = {_CHECKPOINT_PAGES * 4096}")
        db.execute("PRAGMA secure_delete = OFF")  # Debian turns it on; it writes every deleted body once more
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute(TOUCHED)
        if self._max_file_bytes is not None:
            page_bytes = db.execute("PRAGMA page_size").fetchone()[0]
            db.execute(f"PRAGMA max_page_count = {max(1, self._max_file_bytes // page_bytes)}")
        self._check_owner(db)
        self._switch_to_wal(db)
        with self.transaction(db):
            if not self._check_owner(db):
                for statement in _SCHEMA:
                    db.execute(statement)
            self.clock.prepare(db)
            db.execute(
                "INSERT INTO queues (name, mark) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (self._queue_name, secrets.token_hex(4)),
            )
            self.queue, self.mark = db.execute(
                "SELECT queue, mark FROM queues WHERE name = ?", (self._queue_name,)
            ).fetchone()

    def _check_owner(self, db: sqlite3.Connection) -> bool:
        """Whether the tables are there. Another program's file is refused before anything in it changes."""
        if not db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            return False
        if db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise SourceError(f"{self.path} is a SQLite database of another program, not a queue file")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version != _SCHEMA_VERSION:
            raise SourceError(f"{self.path} has queue format {version}, this Fleet knows {_SCHEMA_VERSION}")
        return True

    def _switch_to_wal(self, db: sqlite3.Connection) -> None:
        # Two processes that open a new file at once collide here, and SQLite does not wait for this lock.
        give_up = time.monotonic() + self._busy_timeout_ms / 1000
        while True:
            try:
                mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                break
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > give_up:
                    raise
            time.sleep(0.002)
        if mode != "wal":
            raise SourceError(
                f"{self.path} lies on a file system without shared memory; a queue file needs a local disk"
            )

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with translated(self.path):
                db.close()


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def check_place(path: Path) -> None:
    """Raises unless the file can be read and written, or could be made. It is not opened.

    Closing it would take its locks from a connection that this process may have on it.
    """
    with translated(path):
        if path.exists():
            if not path.is_file():
                raise SourceError(f"queue file {path}: not a file")
            if not os.access(path, os.R_OK | os.W_OK):
                raise SourceUnavailable(f"queue file {path}: cannot be read and written")
            return
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            raise SourceUnavailable(
                f"queue file {path}: cannot be created: {folder} is not a folder that can be written to"
            )


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors, as ours."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            raise SourceFull(f"queue file {path} cannot grow: {error}") from error
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise SourceError(f"queue file {path} is damaged, or not a queue file: {error}") from error
        if isinstance(error, sqlite3.OperationalError):
            raise SourceUnavailable(f"queue file {path}: {error}") from error
        raise SourceError(f"queue file {path}: {error}") from error
    except OSError as error:
        raise SourceUnavailable(f"queue file {path}: {error.strerror or error}") from error
