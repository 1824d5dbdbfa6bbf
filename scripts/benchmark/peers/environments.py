"""An environment of its own for each peer, so that no peer's dependencies touch Fleet's or another's."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmark.errors import BenchError
from benchmark.machine import child

INSTALL_S = 300.0
NODE_MAJOR = 20
_STAMP = ".installed"


def python_environment(folder: Path, requirements: Path, say: Callable[[str], None]) -> None:
    """A venv with exactly these pinned packages. Made once, and again when the pins change."""
    wanted = _fingerprint(requirements, sys.version)
    interpreter = folder / "bin" / "python"
    if _is_installed(folder, wanted) and interpreter.exists():
        return
    _clear(folder)
    log = folder.parent / f"{folder.name}.install.log"
    say("creating a venv")
    child.call([sys.executable, "-m", "venv", str(folder)], log=log, timeout_s=INSTALL_S)
    say("installing with pip")
    pip = [str(interpreter), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    child.call([*pip, "--no-deps", "-r", str(requirements)], log=log, timeout_s=INSTALL_S)
    child.call([str(interpreter), "-m", "pip", "check"], log=log, timeout_s=INSTALL_S)
    (folder / _STAMP).write_text(wanted)


def node_environment(folder: Path, package: Path, say: Callable[[str], None]) -> None:
    """A folder with this package.json's node_modules, made once like a venv."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise BenchError(f"{'node' if node is None else 'npm'} is not installed; install Node.js {NODE_MAJOR} or later")
    asked = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=False)
    version = asked.stdout.strip()
    if not version.startswith("v") or int(version[1:].split(".")[0]) < NODE_MAJOR:
        raise BenchError(f"node is {version or 'broken'}; the node peers need {NODE_MAJOR} or later")
    wanted = _fingerprint(package, version)
    if _is_installed(folder, wanted):
        return
    _clear(folder)
    log = folder.parent / f"{folder.name}.install.log"
    shutil.copy(package, folder / "package.json")
    say("installing with npm")
    # No lock file: it would hold the address of whatever registry this machine uses. The pins are exact instead.
    command = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
    child.call(command, log=log, timeout_s=INSTALL_S, cwd=folder)
    (folder / _STAMP).write_text(wanted)


def _fingerprint(pins: Path, runtime: str) -> str:
    return hashlib.sha256(pins.read_bytes() + runtime.encode()).hexdigest()


def _is_installed(folder: Path, wanted: str) -> bool:
    stamp = folder / _STAMP
    return stamp.exists() and stamp.read_text() == wanted


def _clear(folder: Path) -> None:
    # The stamp is written last, so a half-made environment is made again from nothing.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
