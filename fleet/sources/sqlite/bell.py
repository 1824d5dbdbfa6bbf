"""Waking a process that waits for a change in a file, without polling the file.

The process that changed the file touches it *after* the commit; a waiting process hears that through inotify. The
writes themselves say too little: SQLite publishes a commit in shared memory, after its last write.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from pathlib import Path

from fleet.waiting import happens

_IN_ATTRIB = 0x04

_libc = ctypes.CDLL(None, use_errno=True)


def ring(path: Path) -> None:
    """Wake everybody who waits on this file. Best effort: a waiting process also looks from time to time."""
    with contextlib.suppress(OSError):
        os.utime(path)


class FileBell:
    """Counts the rings, so that one that comes between looking and waiting is not missed."""

    def __init__(self, *, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next = asyncio.Event()
        self.rings = 0

    @property
    def hears_others(self) -> bool:
        """False if the system has no inotify left for us; then we look more often instead."""
        return self._fd >= 0

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        fd = int(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if fd < 0:
            return
        if int(_libc.inotify_add_watch(fd, os.fsencode(self._path), _IN_ATTRIB)) < 0:
            os.close(fd)
            return
        self._fd = fd
        self._loop.add_reader(fd, self._heard)

    def ring(self) -> None:
        """A ring from inside this process and loop."""
        self.rings += 1
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self, *, after: int, timeout_s: float) -> None:
        """Return at the first ring after the `after`th, or when the time is up."""
        if self.rings != after:
            return
        await happens(self._next, within_s=timeout_s)

    def close(self) -> None:
        if self._fd >= 0 and self._loop is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
        self._fd = -1
        self.ring()

    def _heard(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 65_536)  # many touches, one wake
        self.ring()
