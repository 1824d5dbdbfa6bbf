"""The embedded queue as it is: the real adapter on a real file, its thread run in line and its bell rung in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from fleet.sources.sqlite import bell as file_bell
from fleet.sources.sqlite import file as sqlite_file
from fleet.sources.sqlite import source as sqlite


class InLine:
    """In place of a ThreadPoolExecutor: a job is done when it is submitted."""

    def __init__(self, *_: Any, **__: Any) -> None:
        return

    def submit(self, job: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(job(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True) -> None:
        return


class Bell:
    """In place of a FileBell: everybody hears everybody."""

    hears_others = True
    _all: ClassVar[dict[Path, list[Bell]]] = {}

    def __init__(self, *, path: Path) -> None:
        self._path = path
        self._next = asyncio.Event()
        self.rings = 0

    def open(self) -> None:
        Bell._all.setdefault(self._path, []).append(self)

    def ring(self) -> None:
        self.rings += 1
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self, *, after: int, timeout_s: float) -> None:
        if self.rings != after:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._next.wait()

    def close(self) -> None:
        if self in Bell._all.get(self._path, []):
            Bell._all[self._path].remove(self)
        self.ring()


def ring(path: Path) -> None:
    for bell in Bell._all.get(path, []):
        bell.ring()


@contextlib.contextmanager
def in_line() -> Iterator[None]:
    Bell._all = {}
    with (
        mock.patch.object(sqlite_file, "ThreadPoolExecutor", InLine),
        mock.patch.object(sqlite, "FileBell", Bell),
        mock.patch.object(file_bell, "ring", ring),
        mock.patch.object(sqlite_file.QueueFile, "sync_log", lambda _self: None),
    ):
        yield
