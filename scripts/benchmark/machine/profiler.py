"""Where the time goes: py-spy beside each process, in an environment of its own as the peers have theirs."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from benchmark.errors import BenchError
from benchmark.ground import Ground
from benchmark.machine import child
from benchmark.peers.environments import python_environment
from benchmark.scenario import Measurement

_PINS = Path(__file__).parent / "profiler.requirements.txt"
_RATE_HZ = 200
_MOST_S = 120
_TOP = 20
_STOP_S = 20.0


@dataclass(slots=True)
class Profiler:
    """Profiles one attempt; what it finds is in `profile-SCENARIO-PROCESS.txt`."""

    ground: Ground
    scenario: str
    _running: dict[str, tuple[subprocess.Popen[bytes], Path]] = field(default_factory=dict)

    @staticmethod
    def install(ground: Ground) -> None:
        python_environment(_folder(ground), _PINS, ground.say)

    def attach(self, pids: Mapping[str, int]) -> None:
        for name, pid in pids.items():
            stacks = self.ground.scratch / f"{self.scenario}-{name.replace(' ', '-')}.stacks"
            command = [str(_folder(self.ground) / "bin" / "py-spy"), "record", "--format", "raw"]
            command += ["--rate", str(_RATE_HZ), "--duration", str(_MOST_S), "--pid", str(pid), "--output", str(stacks)]
            self._running[name] = child.start(command, log=self._log), stacks

    def finish(self) -> None:
        """While the processes still live: py-spy writes down what it saw when it is interrupted."""
        for process, _ in self._running.values():
            process.send_signal(2)
        for name, (process, stacks) in self._running.items():
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)
            child.stop([process])
            if not stacks.exists():
                raise BenchError(f"py-spy saw nothing of {name}: {child.last_line(self._log)}")
            self.write(name, _top(stacks.read_text()))
        self._running.clear()

    def write_redis(self, stats: Mapping[str, Mapping[str, Any]], messages: int) -> None:
        lines = ["us a message     calls  command (a script's time includes the commands it calls)"]
        for name, figures in sorted(stats.items(), key=lambda item: -float(item[1]["usec"]))[:_TOP]:
            lines.append(f"{float(figures['usec']) / max(messages, 1):12.3f} {figures['calls']:9}  {name}")
        self.write("redis", "\n".join(lines) + "\n")

    def write(self, name: str, text: str) -> None:
        path = self.ground.out / f"profile-{self.scenario}-{name.replace(' ', '-')}.txt"
        path.write_text(text)
        self.ground.say(f"wrote {path.name}")

    @property
    def _log(self) -> Path:
        return self.ground.scratch / f"{self.scenario}.py-spy.log"


@runtime_checkable
class Profiled(Protocol):
    """A scenario that can run once with a profiler beside its processes; that run's figure does not count."""

    name: str

    def profile(self, ground: Ground, profiler: Profiler, /) -> Measurement: ...


def _folder(ground: Ground) -> Path:
    return ground.out / "tools" / "py-spy"


def _top(raw: str) -> str:
    """The functions with the most samples: where the process was, and what it was in the middle of."""
    own: Counter[str] = Counter()
    within: Counter[str] = Counter()
    total = 0
    for line in raw.splitlines():
        stack, _, samples = line.rpartition(" ")
        frames = [_without_line(frame) for frame in stack.split(";")]
        total += int(samples)
        own[frames[-1]] += int(samples)
        for frame in set(frames):
            within[frame] += int(samples)
    share = 100 / max(total, 1)
    lines = [f"{total} samples at {_RATE_HZ} a second while it ran", "", "its own time"]
    lines += [f"{count * share:6.1f} %  {frame}" for frame, count in own.most_common(_TOP)]
    lines += ["", "with what it called"]
    lines += [f"{count * share:6.1f} %  {frame}" for frame, count in within.most_common(_TOP)]
    return "\n".join(lines) + "\n"


def _without_line(frame: str) -> str:
    """`poll (client.py:12)` → `poll (client.py)`: a function is what one can change."""
    head, colon, line = frame.rstrip(")").rpartition(":")
    return f"{head})" if colon and line.isdigit() else frame
