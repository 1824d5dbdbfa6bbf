"""An asyncio event loop with virtual time, on which many processes live: kill or stop one at any of its awaits.

Nothing waits: when nothing is ready the clock jumps to the next timer. A process is a context variable that its tasks
and callbacks inherit; each callback is run, thrown away (its process was killed) or set aside (its process is stopped).
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import signal
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)
SPIN = 300_000
"""Callbacks at one moment of virtual time: more than this is a loop that waits for nothing."""


class Livelock(Exception):
    """The clock stands still, and something is always ready."""


class Task(asyncio.Task[Any]):
    """Hashed by its number, so that no memory address decides in which order a set of tasks is iterated."""

    made = 0
    _number = 0

    def __hash__(self) -> int:
        if not self._number:
            Task.made += 1
            self._number = Task.made
        return self._number


class Event(asyncio.Event):
    """Hashed by its number, like `Task`."""

    _number = 0
    __hash__ = Task.__hash__


class Handle:
    """Like asyncio's, with no more than is needed here: there are millions. So `_handle` fills it in, not an
    `__init__`."""

    __slots__ = ("args", "callback", "context", "process", "when_s")
    callback: Callable[..., object] | None
    args: tuple[Any, ...]
    context: contextvars.Context
    process: Process | None
    when_s: float

    def cancel(self) -> None:
        self.callback, self.args = None, ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.when_s


class Process:
    """One process of the fleet, as an operating system knows it."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.is_dead = False
        self.is_stopped = False
        self.stops = 0
        self.stopped_s = 0.0
        self.has_connected = False
        """Whether it ever connected to Redis."""
        self.wall_offset_ms = 0.0
        self.on_signal: dict[int, Callable[[], object]] = {}
        self.on_error: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self.put_by: deque[Handle] = deque()
        self.on_death: list[Callable[[], object]] = []
        self.on_stop: list[Callable[[], object]] = []
        self.context = contextvars.Context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return self.name


class Loop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        Task.made = 0
        self.now_s = 0.0
        self.process: Process | None = None
        """The process whose callback is running."""
        self.outside = contextvars.Context()
        self.errors: list[tuple[Process | None, dict[str, Any]]] = []
        self._due: list[tuple[float, int, Handle]] = []
        self._count = 0
        self._at_once = 0
        self._kept: list[Any] = []
        """Tasks of dead processes: if collected, they would run their `finally`, which no killed process does."""

    # Time ---------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.now_s

    # Each future calls the first, and there is one future per call: without a Python function they cost half as much.
    get_debug = staticmethod(bool)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        handle = _handle(callback, args, context if context is not None else contextvars.copy_context())
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        return self.call_at(self.now_s + (delay if delay > 0 else 0.0), callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        handle = _handle(callback, args, context if context is not None else contextvars.copy_context())
        handle.when_s = when
        self._push(when, handle)
        return handle

    def later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        """Like `call_later`, but of no process: it happens whatever becomes of the process that caused it."""
        self._push(self.now_s + delay_s, _handle(callback, args, self.outside))

    def _push(self, when: float, handle: Handle) -> None:
        self._count += 1
        heapq.heappush(self._due, (when, self._count, handle))

    def _run_once(self) -> None:
        """All turns until it is stopped, not just one: there are too many for a call each."""
        ready: deque[Handle] = self._ready  # type: ignore[attr-defined]
        take, due = ready.popleft, self._due
        while not self._stopping:  # type: ignore[attr-defined]
            if not ready:
                self._jump(ready, due)
            for _ in range(len(ready)):
                handle = take()
                callback, process = handle.callback, handle.process
                if callback is None:
                    continue
                if process is not None:
                    if process.is_dead:
                        self._kept.append(handle)
                        continue
                    if process.is_stopped:
                        process.put_by.append(handle)
                        continue
                self.process = process
                try:
                    handle.context.run(callback, *handle.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"message": f"Exception in callback {callback}", "exception": error})
            self.process = None
            self._at_once += 1
            if self._at_once > SPIN:
                raise Livelock("callbacks follow each other and no time passes")

    def _jump(self, ready: deque[Handle], due: list[tuple[float, int, Handle]]) -> None:
        pop = heapq.heappop
        while due and due[0][2].callback is None:
            pop(due)
        if not due:
            raise Livelock("nothing is ready and nothing will be")
        when, _, handle = pop(due)
        if when > self.now_s:
            self.now_s = when
            self._at_once = 0
        ready.append(handle)
        while due and due[0][0] <= when:
            ready.append(pop(due)[2])

    # What an operating system does ------------------------------------------------------------------

    def start(self, process: Process, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return process.context.run(self.create_task, main)

    def kill(self, process: Process) -> None:
        """SIGKILL: nothing of it runs from here on, not even its clean-up."""
        process.is_dead = True
        self._kept.extend(process.put_by)
        process.put_by.clear()
        for tell in process.on_death:
            tell()

    def stop_process(self, process: Process) -> None:
        """SIGSTOP: time goes on without it."""
        process.is_stopped = True
        process.stopped_s = self.now_s
        process.stops += 1
        for tell in process.on_stop:
            tell()

    def continue_process(self, process: Process) -> None:
        process.is_stopped = False
        self._ready.extend(process.put_by)  # type: ignore[attr-defined]
        process.put_by.clear()

    def terminate(self, process: Process) -> None:
        """SIGTERM."""
        handler = process.on_signal.get(signal.SIGTERM)
        if handler is not None:
            self.call_soon(handler, context=process.context)

    # What asyncio asks of a loop --------------------------------------------------------------------

    def create_task(
        self, coro: Any, *, name: object = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        task = Task(coro, loop=self, name=str(name) if name is not None else None, context=context)
        self._kept.append(task)
        return task

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        assert self.process is not None
        self.process.on_signal[sig] = lambda: callback(*args)

    def set_exception_handler(self, handler: Any) -> None:
        if self.process is not None:
            self.process.on_error = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        process = self.process
        if process is not None and process.on_error is not None:
            process.on_error(self, context)
        else:
            self.errors.append((process, context))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append((self.process, context))

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """At once: there are no threads here."""
        future = self.create_future()
        try:
            result = func(*args)
        except Exception as error:
            future.set_exception(error)
        else:
            self.later(0.001, _resolve, future, result)
        return future

    def _process_events(self, event_list: Any) -> None:
        raise AssertionError("there is no selector")

    def _write_to_self(self) -> None:
        pass


def _handle(callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context) -> Handle:
    handle = Handle()
    handle.callback = callback
    handle.args = args
    handle.context = context
    handle.process = context.get(PROCESS)
    return handle


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)
