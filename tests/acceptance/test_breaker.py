"""An endpoint that fails is left alone by the whole fleet, and called again once it works."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from fleet.operate.journal import Start, read
from tests.servers.ports import free_port
from tests.stage import FLEET, POOL, Stage, a_stage
from tests.waiting import until


def _breakers(stage: Stage) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(_said(stage, "breakers", "--json"))
    return found


def _said(stage: Stage, *arguments: str) -> bytes:
    command = [FLEET, "--redis", stage.redis_server.url, *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout


def test_a_failing_endpoint_is_left_alone_and_its_messages_are_nacked(tmp_path: Path) -> None:
    with a_stage(tmp_path, path="/fail") as stage:
        stage.start_endpoint(latency_ms=0)
        stage.configure()
        stage.send_messages(200, 200)
        stage.start("coordinator")
        stage.start("worker")
        stage.start("worker")
        until(lambda: bool(_breakers(stage)), 30, stage.describe)
        (breaker,) = _breakers(stage)
        assert breaker["origin"] == stage.endpoint_url
        told = json.loads(_said(stage, "status", "--json"))
        (blocked,) = told["circuitBreakers"]
        assert (blocked["origin"], list(blocked["pools"])) == (stage.endpoint_url, [POOL])
        assert any(f"behind it: pool {POOL}" in problem for problem in told["problems"])
        # What was under way when it opened is answered still; of the 600 attempts that is a part.
        until(stage.is_idle, 30, stage.describe)
        assert sum(isinstance(record, Start) for record in read(stage.endpoint_journal)) < 400


@pytest.mark.long
def test_messages_are_delivered_once_the_endpoint_is_there_again(tmp_path: Path) -> None:
    with a_stage(tmp_path) as stage:
        port = free_port()
        stage.endpoint_url = f"http://127.0.0.1:{port}"
        stage.configure()
        stage.send_messages(30, 30)
        stage.start("coordinator")
        stage.start("worker")
        until(lambda: bool(_breakers(stage)), 30, stage.describe)
        stage.start_endpoint(latency_ms=0, port=port)
        stage.wait_drained(120)
        assert stage.verdict().lost == 0
        assert _breakers(stage) == []
