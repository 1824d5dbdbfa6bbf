"""A queue file, a clock that stands still, and processes that use the same file."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from fleet.sources.sqlite.publisher import SqlitePublisher
from fleet.sources.sqlite.source import SqliteSource
from tests.clocks import HandClock
from tests.messages import opened, publish

_ROOT = Path(__file__).parents[3]


class QueueClock(HandClock):
    """`stop` makes the thread that asks next wait in the middle of its work."""

    def __init__(self) -> None:
        super().__init__()
        self.booted_ms = 0
        self.times_asked = 0
        self.asked = threading.Event()
        self.go = threading.Event()
        self.go.set()

    def stop(self) -> None:
        self.asked.clear()
        self.go.clear()

    def boot_ms(self) -> float:
        self.times_asked += 1
        self.asked.set()
        assert self.go.wait(10)
        return super().boot_ms() - self.booted_ms


class QueueFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = QueueClock()

    def source(self, *, queue: str = "q", visibility_ms: int = 30_000) -> AbstractAsyncContextManager[SqliteSource]:
        source = SqliteSource(
            path=self.path,
            queue=queue,
            visibility_ms=visibility_ms,
            clock=self.clock,
            busy_timeout_ms=2_000,
        )
        return opened(source)

    def publisher(
        self, *, queue: str = "q", max_file_bytes: int | None = None, busy_timeout_ms: int = 2_000
    ) -> AbstractAsyncContextManager[SqlitePublisher]:
        publisher = SqlitePublisher(
            path=self.path,
            queue=queue,
            clock=self.clock,
            busy_timeout_ms=busy_timeout_ms,
            max_file_bytes=max_file_bytes,
        )
        return opened(publisher)

    async def send(self, *bodies: str, group: str | None = "g", queue: str = "q", delay_ms: int = 0) -> None:
        async with self.publisher(queue=queue) as publisher:
            await publish(publisher, *bodies, group=group, delay_ms=delay_ms)


_PRODUCER = """
import asyncio, sys
from fleet.sources.base import Outgoing
from fleet.sources.open import open_publisher

async def main(uri, name, count):
    publisher = open_publisher(uri)
    await publisher.open()
    for number in range(count):
        body = f"{name} {number}".encode()
        await publisher.publish([Outgoing(id=f"{name}-{number}-{part}", body=body + b" %d" % part,
                                          group=f"group {part % 3}") for part in range(7)])
    await publisher.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""

# Dies with a transaction open whose pages are already in the file: a cache of one page makes SQLite write early.
_DYING_PRODUCER = """
import os, signal, sqlite3, sys

db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA cache_size = 1")
db.execute("BEGIN IMMEDIATE")
for seq in range(1_000_000, 1_002_000):
    db.execute("INSERT INTO groups (grp, queue, ready_at_ms, name) VALUES (?, 1, 0, ?)", (seq, f"dying {seq}"))
    db.execute("INSERT INTO messages (grp, seq, visible_at_ms, turn) VALUES (?, ?, 0, 0)", (seq, seq))
    db.execute("INSERT INTO bodies VALUES (?, 1, ?, 0, 'x', ?)", (seq, seq, b"x" * 500))
os.kill(os.getpid(), signal.SIGKILL)
"""


def start_producer(path: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _PRODUCER, f"sqlite:///{path}?queue=q", name, str(count)]
    return subprocess.Popen(command, cwd=_ROOT)


def run_dying_producer(path: Path) -> int:
    return subprocess.run([sys.executable, "-c", _DYING_PRODUCER, str(path)], check=False, timeout=60).returncode
