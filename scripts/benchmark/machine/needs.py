"""Programs of the operating system: found, or installed by scripts/need when root runs the benchmark."""

from __future__ import annotations

from pathlib import Path

from benchmark.machine import child

_APT_S = 600.0


def need(program: str, package: str, *, repository: Path, log: Path) -> None:
    """Return when `program` is there, or raise the one line that says what to install."""
    child.call([str(repository / "scripts" / "need"), f"{program}:{package}"], log=log, timeout_s=_APT_S)
