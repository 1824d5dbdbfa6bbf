"""Supervising real children that behave in every bad way."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from fleet.local.supervise import Program, Supervisor, child_environment
from tests.waiting import eventually

PATIENCE_S = 10.0


def program(name: str, script: str, *, stop_within_s: float = 5.0) -> Program:
    return Program(
        name=name,
        command=("/bin/sh", "-c", script),
        environment={"PATH": os.environ["PATH"]},
        stop_within_s=stop_within_s,
    )


async def test_a_child_that_dies_is_started_again(tmp_path: Path) -> None:
    supervisor = Supervisor(stages=[[program("worker", "exec sleep 60")]])
    running = asyncio.ensure_future(supervisor.run())
    await eventually(lambda: "worker" in supervisor.pids())
    first = supervisor.pids()["worker"]
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: supervisor.pids().get("worker", first) != first)
    supervisor.stop()
    assert await running == 0
    assert supervisor.pids() == {}


async def test_stages_stop_in_the_opposite_order(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = (
        "trap 'echo {0} >> " + str(log) + "; exit 0' TERM; echo up >> " + str(log) + "; while :; do sleep 0.01; done"
    )
    stages = [[program(name, script.replace("{0}", name))] for name in ("syncer", "coordinator", "worker")]
    supervisor = Supervisor(stages=stages)
    running = asyncio.ensure_future(supervisor.run())
    await eventually(lambda: log.exists() and log.read_text().count("up") == 3)
    supervisor.stop()
    await running
    assert log.read_text().split()[3:] == ["worker", "coordinator", "syncer"]


async def test_one_that_is_added_is_kept_alive_stops_first_and_prints_where_it_is_told(tmp_path: Path) -> None:
    log, own = tmp_path / "log", tmp_path / "own"
    script = "trap 'echo {0} >> " + str(log) + "; exit 0' TERM; echo {0} is up; while :; do sleep 0.01; done"
    supervisor = Supervisor(stages=[[program("worker", script.replace("{0}", "worker"))]])
    running = asyncio.ensure_future(supervisor.run())
    await eventually(lambda: "worker" in supervisor.pids())
    supervisor.add(dataclasses.replace(program("feed", script.replace("{0}", "feed")), output=own))
    await eventually(own.exists)
    await eventually(lambda: own.read_text() == "feed is up\n")
    os.kill(supervisor.pids()["feed"], signal.SIGKILL)
    await eventually(lambda: own.read_text() == "feed is up\n" * 2)
    supervisor.stop()
    assert await running == 0
    assert log.read_text().split() == ["feed", "worker"]


async def deaf(folder: Path, *, stop_within_s: float) -> tuple[Supervisor, asyncio.Future[int]]:
    """One child, which ignores SIGTERM, and is up."""
    ready = folder / "ready"
    script = f"trap '' TERM; touch {ready}; while :; do sleep 0.01; done"
    supervisor = Supervisor(stages=[[program("deaf", script, stop_within_s=stop_within_s)]])
    running = asyncio.ensure_future(supervisor.run())
    await eventually(ready.exists)
    return supervisor, running


async def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    supervisor, running = await deaf(tmp_path, stop_within_s=0.1)
    pid = supervisor.pids()["deaf"]
    supervisor.stop()
    assert await running == 0
    assert not psutil.pid_exists(pid)


async def test_asked_to_stop_twice_it_waits_for_nobody(tmp_path: Path) -> None:
    supervisor, running = await deaf(tmp_path, stop_within_s=3600)
    supervisor.stop()
    supervisor.stop()
    async with asyncio.timeout(PATIENCE_S):
        assert await running == 0


async def test_a_final_end_stops_everything_with_exit_code_1(tmp_path: Path) -> None:
    async def is_final(program: Program, code: int) -> bool:
        return program.name == "syncer" and code == 7

    stages = [[program("syncer", "exit 7")], [program("worker", "exec sleep 60")]]
    supervisor = Supervisor(stages=stages, is_final=is_final)
    async with asyncio.timeout(PATIENCE_S):
        assert await supervisor.run() == 1
    assert supervisor.pids() == {}


async def test_the_pause_before_a_restart_grows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor(stages=[[program("broken", "exit 3")]])
    running = asyncio.ensure_future(supervisor.run())
    await eventually(lambda: len(caplog.records) >= 3)
    supervisor.stop()
    await running
    assert [record.message for record in caplog.records[:3]] == [
        f"broken ended with exit code 3; starts again in {pause} s" for pause in ("0.2", "0.4", "0.8")
    ]


def test_children_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    script = """
import asyncio
from fleet.local.supervise import Program, Supervisor
async def main():
    child = Program(name="child", command=("sleep", "60"), environment={"PATH": "/usr/bin:/bin"}, stop_within_s=1)
    supervisor = Supervisor(stages=[[child]])
    supervisor.start()
    print(supervisor.pids()["child"], flush=True)
    await supervisor.run()
asyncio.run(main())
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=child_environment(os.environ)) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    child.wait(PATIENCE_S)
