"""One process of a fleet that a test started: whether it lives, what it said, and how it is ended."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.servers.forked import Forked


@dataclass
class Member:
    role: str
    process: subprocess.Popen[bytes] | Forked
    log: Path
    name: str = ""

    @property
    def alive(self) -> bool:
        if isinstance(self.process, Forked):
            return not self.process.has_ended
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        if not isinstance(self.process, Forked):
            self.process.wait()

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def text(self) -> str:
        return self.log.read_text("utf-8", "replace")

    @property
    def blocked_at_ms(self) -> float:
        """Since when its event loop hangs at a failpoint; 0 if it does not."""
        said = next((line for line in self.text().splitlines() if "blocked at failpoint" in line), None)
        return datetime.fromisoformat(said.split()[0]).timestamp() * 1000 if said else 0.0


def begin(role: str, command: list[str], environment: dict[str, str], log: Path) -> Member:
    """Forked, if nothing has to be loaded before Python is."""
    if "LD_PRELOAD" not in environment:
        return Member(role, Forked(command, environment, log), log)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
    return Member(role, process, log)
