"""In which step of its way a message spends its time: Redis shows every call, and calls name their messages."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import redis

from benchmark.machine.cost import percentile
from fleet.state.scripts import script

_MESSAGE_ID = re.compile(r"01JBENCH\d{18}")
_STEPS = (
    "publish is called → the queue accepted it",
    "accepted → read from the queue, tracking is called",
    "tracking → submitting to the pool is called",
    "submitting → the request arrives (submit, wake, claim, POST)",
)
_SHARES = (0.5, 0.9, 0.99)


@dataclass(slots=True)
class Stages:
    """When `track` and `submit` were first called with each message, in ms since 1970."""

    tracked_ms: dict[str, float] = field(default_factory=dict)
    submitted_ms: dict[str, float] = field(default_factory=dict)

    def text(self, published: Mapping[str, tuple[float, float]], arrived_ms: Mapping[str, float]) -> str:
        """A table of the steps; `published` holds when a message was handed over and when it was accepted."""
        steps: tuple[list[float], ...] = ([], [], [], [])
        for name, (called_ms, accepted_ms) in published.items():
            if name in self.submitted_ms and name in self.tracked_ms and name in arrived_ms:
                marks = [called_ms, accepted_ms, self.tracked_ms[name], self.submitted_ms[name], arrived_ms[name]]
                for step, (begin, end) in zip(steps, pairwise(marks), strict=True):
                    step.append(end - begin)
        lines = [f"{len(steps[0])} messages, ms (slower than unobserved: Redis reports every call)", ""]
        lines.append("     p50      p90      p99  step")
        for title, step in zip(_STEPS, steps, strict=True):
            lines.append("".join(f"{percentile(step, share):8.2f} " for share in _SHARES) + f" {title}")
        return "\n".join(lines) + "\n"


@contextmanager
def observed(server: redis.Redis, stages: Stages) -> Iterator[None]:
    """Read Redis' MONITOR in a thread for as long as the block lasts; what it said is sorted out afterwards."""
    lines: list[bytes] = []
    over = threading.Event()
    started = threading.Event()

    def read() -> None:
        with server.monitor() as monitor:  # type: ignore[no-untyped-call]
            started.set()
            while not over.is_set():
                lines.append(bytes(monitor.connection.read_response(disable_decoding=True)))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    started.wait()
    try:
        yield
    finally:
        over.set()
        server.ping()  # one more line, so that the reader looks up
        reader.join(5.0)
    for name, into in (("track", stages.tracked_ms), ("submit", stages.submitted_ms)):
        _note(lines, script(name).digest.encode(), into)


def _note(lines: Sequence[bytes], digest: bytes, into: dict[str, float]) -> None:
    for line in lines:
        if digest in line:
            called_ms = float(line.split(None, 1)[0]) * 1000
            for message in _MESSAGE_ID.findall(line.decode(errors="replace")):
                into.setdefault(message, called_ms)
