"""A fork of the `fleet` command is that command to whoever starts it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.servers import forked
from tests.servers.forked import Forked

WITHIN_S = 30.0


def exec_(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **more}
    return subprocess.run(
        [sys.executable, "-m", "fleet.cli", *arguments], env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("nonsense",), ("verify", "nowhere.ndjson"), ("worker", "--processes", "0")],
)
def test_it_says_what_the_command_says_and_ends_as_it_does(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    real = exec_(*arguments, COLUMNS="100")
    fork = forked.run(["fleet", *arguments], {**os.environ, "COLUMNS": "100"}, tmp_path, timeout_s=WITHIN_S)
    assert (fork.returncode, fork.stdout, fork.stderr) == (real.returncode, real.stdout, real.stderr)


def test_it_has_the_surroundings_that_it_is_given_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_REDIS_URL", "redis://127.0.0.1:1/0")
    (tmp_path / "fleet.toml").write_text('[redis]\nurl = "redis://127.0.0.1:2/0"\n')
    here = {"FLEET_CONFIG": "fleet.toml"}
    done = forked.run(["fleet", "status"], here, tmp_path, timeout_s=WITHIN_S)
    assert done.returncode == 1
    assert "127.0.0.1:2" in done.stderr


def test_what_is_given_to_it_is_its_input(tmp_path: Path) -> None:
    journal = '{"kind":"sent","id":"a","group":"g","seq":1,"t":1}\n'
    done = forked.run(["fleet", "verify", "/dev/stdin"], {}, tmp_path, given=journal, timeout_s=WITHIN_S)
    assert "lost                         1" in done.stdout, done


def an_endpoint(directory: Path) -> Forked:
    log = directory / "endpoint.log"
    process = Forked(["fleet", "endpoint", "--port", "0"], {}, log)
    while "http://" not in log.read_text():
        assert not process.has_ended, log.read_text()
    return process


def test_it_is_alive_until_it_is_told_to_end(tmp_path: Path) -> None:
    process = an_endpoint(tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    assert not process.has_ended
    assert os.getpgid(process.pid) == os.getpgid(0), "Ctrl-C is for it as well"
    process.send_signal(signal.SIGTERM)
    assert process.wait(WITHIN_S) == 0
    process.send_signal(signal.SIGTERM)  # nobody is there


def test_one_that_is_killed_is_dead_at_once_and_its_code_says_so(tmp_path: Path) -> None:
    process = an_endpoint(tmp_path)
    process.kill()
    assert process.has_ended
    assert process.returncode == -signal.SIGKILL


def test_it_ends_with_who_has_forked_it() -> None:
    """A pytest that is killed leaves nothing behind."""
    program = (
        "import sys, pathlib; from tests.servers.forked import Forked;"
        "one = Forked(['fleet', 'endpoint', '--port', '0'], {}, pathlib.Path('/dev/null')); print(one.pid, flush=True);"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[3], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        end = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
        waiting = select.poll()
        waiting.register(end, select.POLLIN)
        assert waiting.poll(WITHIN_S * 1000)
        os.close(end)


def test_all_that_is_imported_beforehand_exists() -> None:
    assert [name for name in forked._IMPORTED if find_spec(name) is None] == []
