"""The figures of a run as data: what the JSON file holds, and what it was measured on."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from benchmark.errors import BenchError
from benchmark.machine.servers import redis_binary
from benchmark.machine.sink import nginx_binary
from benchmark.measure import Row, best_peer, verdicts


def report(rows: Sequence[Row], *, short: bool, rounds: int) -> dict[str, Any]:
    peer = best_peer(rows)
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "short": short,
        "rounds": rounds,
        "machine": _machine(),
        "best_peer": peer.scenario.name if peer else None,
        "rows": [_row(row, rows, peer) for row in rows],
    }


def _row(row: Row, rows: Sequence[Row], peer: Row | None) -> dict[str, Any]:
    judged = [{"text": v.text, "ratio": round(v.ratio, 4), "met": v.met} for v in verdicts(row, rows)]
    attempts = [
        {"setting": setting, "value": round(m.value, 3), "problems": list(m.problems), "note": m.note, **m.details}
        for setting, m in row.attempts
    ]
    entry: dict[str, Any] = {"name": row.scenario.name, "title": row.scenario.title, "kind": row.scenario.kind}
    if row.best:
        setting, measurement = row.best
        entry |= {"value": round(measurement.value, 3), "unit": measurement.unit, "setting": setting}
        if compares_with_peers(row) and peer and peer.best:
            entry["times_best_peer"] = round(measurement.value / peer.best[1].value, 4)
    return entry | {"budgets": judged, "problems": row.problems, "attempts": attempts}


def compares_with_peers(row: Row) -> bool:
    # Servers of SQS deliver nothing: they stand beside each other.
    return row.best is not None and row.best[1].unit == "messages/s" and row.scenario.kind != "sqs"


def _machine() -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
    }
    for name, command in (("nginx", [_or_nothing("nginx"), "-v"]), ("redis", [_or_nothing("redis"), "--version"])):
        found[name] = _first_line(command)
    found["node"] = _first_line([shutil.which("node") or "", "--version"])
    return found


def _or_nothing(name: str) -> str:
    try:
        return nginx_binary() if name == "nginx" else redis_binary()
    except BenchError:
        return ""


def _first_line(command: list[str]) -> str:
    if not command[0]:
        return "absent"
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return ((ended.stdout + ended.stderr).strip().splitlines() or ["unknown"])[0]
