"""Work on a thread of its own. It is a daemon: work that hangs must not keep a process that is told to end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def begun(work: Callable[[], T], *, name: str) -> Future[T]:
    doing: Future[T] = Future()

    def do() -> None:
        try:
            doing.set_result(work())
        except BaseException as error:
            doing.set_exception(error)

    threading.Thread(target=do, name=name, daemon=True).start()
    return doing
