"""README's first steps, as a new user takes them: pasted one after the other, in an empty folder."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

from fleet.local.supervise import child_environment
from tests.acceptance.fleet_command import Fleet
from tests.servers.ports import free_port
from tests.waiting import PATIENCE_S

README = Path(__file__).parents[2] / "README.md"


def first_steps() -> list[str]:
    block = re.search(
        r"^Try it by hand.*?^```\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert block is not None
    return block[1].splitlines()


def test_readmes_first_steps_work_as_they_are_written(tmp_path: Path) -> None:
    """Where a port is another one, and nothing else."""
    home, port = tmp_path / "home", free_port()
    home.mkdir()
    steps = (
        "\n".join(first_steps()).replace("8421", str(port)).replace("fleet endpoint", f"fleet endpoint --port {port}")
    )
    program = tmp_path / ".venv" / "bin" / "fleet"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m fleet.cli "$@"\n')
    program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FLEET_", "MESSAGE_"))}
    environment = child_environment(kept, HOME=str(home), FLEET_SERVER_PORT="0", FLEET_FEED_ENABLED="false")
    # At the end what runs in the background, as README says.
    script = f"set -e\ntrap 'kill %1 %2; wait' EXIT\n{steps}\n.venv/bin/fleet warnings --json\n"
    with subprocess.Popen(
        ["bash", "-c", script], cwd=tmp_path, env=environment, text=True, process_group=0, stdout=PIPE, stderr=PIPE
    ) as shell:
        try:
            out, err = shell.communicate(timeout=3 * PATIENCE_S)
        except subprocess.TimeoutExpired:
            # What README starts in the background would outlive it, and hold these pipes open.
            os.killpg(shell.pid, signal.SIGTERM)
            raise
    assert shell.returncode == 0, out + err
    assert "100 accepted\n" in out
    assert "No problems." in out, out
    assert out.rstrip().endswith("[]"), out
    assert list(home.iterdir()) == []


def test_without_a_fleet_a_send_waits_as_long_as_it_is_told(tmp_path: Path) -> None:
    alone = Fleet(tmp_path)
    started_s = time.monotonic()
    at_once = alone.run("send", "q", "--target", "http://h/", "--wait", "0")
    waited = alone.run("seed", "--count", "1", "--wait", "1.5")
    assert time.monotonic() - started_s > 1.5
    assert (at_once.code, at_once.err.count("\n")) == (1, 1)
    assert at_once.err.startswith("fleet: no Redis: name one with --redis")
    assert (waited.code, waited.out) == (1, "")
    patience, reason = waited.err.splitlines()
    assert patience == "No fleet is up yet; waiting for one, up to 1.5 s."
    assert reason.startswith("fleet: no Redis: name one with --redis")
