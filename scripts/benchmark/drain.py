"""The one way a queue is measured: fill it, start its workers, time the sink's counter, see that it is empty.

The rate is taken between two readings of the sink: when a fifth was delivered (all processes are up, node has compiled)
and when the last was. What a queue does before its first delivery and after its last is in the details.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmark.errors import BenchError
from benchmark.machine import child
from benchmark.machine.sink import Sink
from benchmark.scenario import Measurement

WARM_UP_SHARE = 0.2
START_S = 60.0
STALL_S = 20.0
EMPTY_S = 15.0
_SAMPLE_S = 0.01
_SPOKEN_EVERY_S = 1.0


class Workers(Protocol):
    """What drains a queue: processes to watch, whose last words are in a log."""

    @property
    def processes(self) -> Sequence[subprocess.Popen[bytes]]: ...

    @property
    def log(self) -> Path: ...


class Observer(Protocol):
    """Looks at the processes between the two readings that the rate is taken from."""

    def warm(self, workers: Workers, /) -> None: ...

    def over(self, messages: int, /) -> Mapping[str, float | int | str]:
        """What it saw, for the details; `messages` were delivered since `warm`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """When the sink's count passed the marks, in seconds of one clock."""

    first_s: float
    warm_s: float
    warm_count: int
    last_s: float
    last_count: int

    @property
    def per_s(self) -> float:
        return self.per_s_until(self.last_s)

    def per_s_until(self, end_s: float) -> float:
        return (self.last_count - self.warm_count) / max(end_s - self.warm_s, 1e-6)


def drain(
    *,
    count: int,
    sink: Sink,
    start_workers: Callable[[], AbstractContextManager[Workers]],
    left: Callable[[], int],
    say: Callable[[str], None],
    until_empty: bool = False,
    observer: Observer | None = None,
) -> Measurement:
    """Drain a queue that was filled with `count` messages. `left` counts all it still holds, whatever their state.

    `until_empty`: the rate is taken up to the moment that the queue is empty, not to the last delivery.
    """
    waiting = left()
    if waiting != count:
        # This also proves that `left` sees messages at all: one that always said 0 would pass the check at the end.
        raise BenchError(f"filled with {count} messages, but {waiting} are in the queue")
    before = sink.deliveries()
    began_s = time.monotonic()
    with start_workers() as workers:
        crossing = watch(count=count, sink=sink, before=before, workers=workers, say=say, observer=observer)
        remaining = _await_empty(left)
        emptied_s = time.monotonic()
        seen = observer.over(count - crossing.warm_count) if observer else {}
    # Once more after the workers have ended: a duplicate may come late.
    delivered = sink.deliveries() - before
    problems = []
    if remaining:
        problems.append(f"{remaining} messages still in the queue")
    if delivered != count:
        problems.append(f"{delivered} deliveries of {count} messages")
    return Measurement(
        value=crossing.per_s_until(emptied_s) if until_empty else crossing.per_s,
        problems=tuple(problems),
        details={
            "messages": count,
            "delivered": delivered,
            "left": remaining,
            "start_s": round(crossing.first_s - began_s, 3),
            "drain_s": round(crossing.last_s - crossing.first_s, 3),
            "measured_s": round(crossing.last_s - crossing.warm_s, 3),
            "empty_after_last_s": round(emptied_s - crossing.last_s, 3),
            **seen,
        },
    )


def watch(
    *,
    count: int,
    sink: Sink,
    before: int,
    workers: Workers,
    say: Callable[[str], None],
    observer: Observer | None = None,
) -> Crossing:
    """Follow the sink's counter until `count` deliveries, or say what stopped them."""
    first_s = warm_s = 0.0
    warm_count = reached = 0
    moved_s = spoken_s = time.monotonic()
    while True:
        # The time after the reading, at both ends: the reading's own wait cancels out.
        delivered = sink.deliveries() - before
        now_s = time.monotonic()
        if delivered > reached:
            reached, moved_s = delivered, now_s
            first_s = first_s or now_s
        if not warm_s and delivered >= count * WARM_UP_SHARE:
            if observer:
                observer.warm(workers)
            warm_s, warm_count = now_s, delivered
        if delivered >= count:
            return Crossing(first_s=first_s, warm_s=warm_s, warm_count=warm_count, last_s=now_s, last_count=delivered)
        for process in workers.processes:
            if process.poll() is not None:
                said = child.last_line(workers.log)
                raise BenchError(f"a worker ended ({process.returncode}) at {delivered} of {count}: {said}")
        if now_s - moved_s > (STALL_S if first_s else START_S):
            said = child.last_line(workers.log)
            raise BenchError(f"no delivery for {now_s - moved_s:.0f} s at {delivered} of {count}: {said}")
        if now_s - spoken_s > _SPOKEN_EVERY_S:
            spoken_s = now_s
            say(f"{delivered:,} of {count:,} delivered")
        time.sleep(_SAMPLE_S)


def _await_empty(left: Callable[[], int]) -> int:
    """The last acknowledgement comes after the last delivery; give it a bounded while."""
    deadline = time.monotonic() + EMPTY_S
    while (remaining := left()) and time.monotonic() < deadline:
        time.sleep(_SAMPLE_S)
    return remaining
