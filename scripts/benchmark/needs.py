"""What the operating system must have: nginx and wrk. Installed from Debian when root runs the benchmark."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from benchmark import child
from benchmark.errors import BenchError
from benchmark.servers import redis_binary
from benchmark.sink import nginx_binary

_APT_S = 300.0


def install_missing(log: Path, say: Callable[[str], None], *, wrk: bool) -> None:
    """Leave nothing missing that the run cannot do without, or say what to install."""
    packages = [package for package, found in _wanted(wrk=wrk) if not found]
    if not packages:
        return
    command = f"apt-get install {' '.join(packages)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise BenchError(f"{', '.join(packages)} missing; run as root: {command}")
    say(f"installing {', '.join(packages)} with apt-get")
    # Debian starts a server when it installs it; in runlevel 1 it does not, and we start our own.
    environment = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    try:
        child.call(["apt-get", "install", "-y", *packages], log=log, timeout_s=_APT_S, environment=environment)
    except BenchError:
        # A machine that never updated its lists knows no package.
        child.call(["apt-get", "update"], log=log, timeout_s=_APT_S, environment=environment)
        child.call(["apt-get", "install", "-y", *packages], log=log, timeout_s=_APT_S, environment=environment)


def _wanted(*, wrk: bool) -> list[tuple[str, bool]]:
    wanted = [("nginx-light", _has(nginx_binary)), ("redis-server", _has(redis_binary))]
    return [*wanted, ("wrk", shutil.which("wrk") is not None)] if wrk else wanted


def _has(find: Callable[[], str]) -> bool:
    try:
        return bool(find())
    except BenchError:
        return False
