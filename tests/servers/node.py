"""Clients of SQS for Node, as tests/acceptance/sqs_clients/node pins them: installed once, outside of the repository.

`python -m tests.servers.node` installs them, which `scripts/test` does at set-up.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.servers.local import ServerFailed

PROGRAMS = Path(__file__).parents[1] / "acceptance" / "sqs_clients" / "node"
_PINS = ("package.json", "package-lock.json")
INSTALL_S = 300


def modules() -> Path:
    """Their `node_modules`."""
    digest = hashlib.sha256(b"".join((PROGRAMS / name).read_bytes() for name in _PINS)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fleet-tests"
    place = cache / f"node-{digest}"
    if not place.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="node-", ignore_cleanup_errors=True) as directory:
            _install(Path(directory, "new"), place)
    return place / "node_modules"


def lay_out(directory: Path) -> Path:
    """Copy the programs where they find what they import."""
    folder = directory / "node"
    shutil.copytree(PROGRAMS, folder)
    (folder / "node_modules").symlink_to(modules())
    return folder


def _install(new: Path, place: Path) -> None:
    new.mkdir()
    for name in _PINS:
        shutil.copy(PROGRAMS / name, new)
    # The lock names hashes and no addresses: where packages come from is the machine's own setting.
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--omit-lockfile-registry-resolved"]
    done = subprocess.run(command, cwd=new, capture_output=True, text=True, timeout=INSTALL_S)
    if done.returncode:
        raise ServerFailed(f"npm ci: {done.stderr[-800:]}")
    try:
        new.rename(place)
    except OSError:
        if not place.exists():  # or another was faster
            raise


if __name__ == "__main__":
    try:
        modules()
    except (ServerFailed, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"clients for Node cannot be installed: {error}")
