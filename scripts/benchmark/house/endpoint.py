"""`fleet endpoint` as a sink that is slow on purpose or notes what came when, and what its journal says."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmark.house.house import Crew, House
from fleet.operate import journal
from tests.servers.ports import free_port

_HTTP_OK = 200


@dataclass(frozen=True, slots=True)
class Endpoint:
    url: str
    journal: Path
    pid: int


@contextmanager
def running_endpoint(home: House, *, latency_ms: float = 0) -> Iterator[Endpoint]:
    port, journal_file = free_port(), home.folder / "endpoint.ndjson"
    with ExitStack() as stack:
        crew = Crew(log=home.log)
        options = ["--port", str(port), "--journal", str(journal_file), "--latency-ms", str(latency_ms)]
        home.start(stack, crew, "endpoint", "endpoint", *options)
        crew.await_that("the endpoint", lambda: _listens(port))
        yield Endpoint(f"http://127.0.0.1:{port}/deliver", journal_file, crew.named["endpoint"].pid)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


@dataclass(slots=True)
class Seen:
    """What an endpoint's journal says."""

    started_ms: dict[str, float]
    """The first start of each message."""
    starts: int
    accepted: int
    peak: int
    """Requests in progress at one moment, at most."""


def read_journal(path: Path) -> Seen:
    seen = Seen({}, 0, 0, 0)
    changes: list[tuple[float, int]] = []
    for record in journal.read(path) if path.exists() else ():
        match record:
            case journal.Start():
                seen.starts += 1
                seen.started_ms.setdefault(record.id, record.t)
                changes.append((record.t, 1))
            case journal.End():
                seen.accepted += record.status == _HTTP_OK
                changes.append((record.t, -1))
            case journal.SentRecord():
                pass
    in_progress = 0
    # If a start and an end share an instant, the end counts first.
    for _, change in sorted(changes):
        in_progress += change
        seen.peak = max(seen.peak, in_progress)
    return seen
