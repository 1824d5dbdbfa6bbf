"""What a stretch of work cost: CPU time of each process, and what Redis did for it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import redis


class Meter:
    """CPU time from `begin` to `end`, so that starting up (imports alone are half a second) stays out of it."""

    def __init__(self, pids: Mapping[str, int], client: redis.Redis) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self._client = client
        self._begun: dict[str, float] = {}

    def begin(self) -> None:
        self._client.config_resetstat()
        self._begun = self._now_s()

    def end(self, messages: int) -> dict[str, float | int | str]:
        """Microseconds of CPU for each message, by process, and Redis' own account of its scripts."""
        scripts = script_usec(self._client)
        us = {name: (now_s - self._begun[name]) * 1e6 / messages for name, now_s in self._now_s().items()}
        figures: dict[str, float | int | str] = {f"{name}_us": round(value, 2) for name, value in us.items()}
        return figures | {"redis_scripts_us": round(scripts / messages, 2)}

    def _now_s(self) -> dict[str, float]:
        seconds = {}
        for name, process in self._processes.items():
            times = process.cpu_times()
            seconds[name.replace(" ", "_")] = times.user + times.system
        return seconds


def command_stats(client: redis.Redis) -> dict[str, dict[str, Any]]:
    stats: dict[str, dict[str, Any]] = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): figures for name, figures in stats.items()}


def script_usec(client: redis.Redis) -> float:
    """Microseconds Redis spent in scripts since its statistics were reset, what they call included."""
    stats = command_stats(client)
    return sum(float(stats[name]["usec"]) for name in ("evalsha", "eval") if name in stats)


def running_ns(pid: int) -> int:
    """The CPU time of all threads of a process in ns: clock ticks of 10 ms are too coarse for an idle one."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):
            total += int((task / "schedstat").read_text().split()[0])
    return total


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
