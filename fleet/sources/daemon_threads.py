"""A few threads for calls that block. They never keep a process from exiting.

A `ThreadPoolExecutor` is joined at exit: a process that is told to stop would wait for a long poll of 20 s.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class DaemonThreads:
    """Started as they are needed, up to `most`, and kept: starting one costs as much as a fast call."""

    def __init__(self, *, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._busy = 0
        """Jobs waiting or running."""
        self._is_stopped = False

    def submit(self, job: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._is_stopped:
                raise RuntimeError(f"the threads of {self._name} are stopped")
            self._busy += 1
            self._jobs.put(partial(_run, future, job))
            if self._busy > self._started and self._started < self._most:
                self._started += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()
        return future

    def stop(self) -> None:
        """What was submitted still runs; this does not wait for it."""
        with self._lock:
            if not self._is_stopped:
                self._is_stopped = True
                for _ in range(self._started):
                    self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            with self._lock:
                self._busy -= 1


def _run(future: Future[T], job: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = job()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
