"""The examples of docs/broker.md, run as they stand there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.broker.queue import MessageQueue
from fleet.config.router import parse_router_config
from fleet.local.supervise import child_environment
from tests.acceptance.fleet_command import Fleet
from tests.servers.local import RedisServer
from tests.servers.ports import free_port
from tests.waiting import PATIENCE_S, until

PAGE = (Path(__file__).parents[2] / "docs" / "broker.md").read_text(encoding="utf-8")
(DOOR,) = re.findall(r"^## The Pub/Sub door$.*?(?=^## )", PAGE, re.MULTILINE | re.DOTALL)


def examples(language: str, *, of: str = PAGE.replace(DOOR, "")) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", of, re.MULTILINE | re.DOTALL)


@pytest.fixture
def named_redis(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    monkeypatch.setenv("FLEET_REDIS_URL", redis_server.url)
    yield redis_server
    if MessageQueue._instance is not None:
        MessageQueue._instance.close()


def test_the_python_of_the_page_works_from_top_to_bottom(
    named_redis: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    here: dict[str, Any] = {}
    said = []
    for number, example in enumerate(examples("python"), start=1):
        exec(compile(example, f"docs/broker.md, example {number}", "exec"), here)
        said.append(capsys.readouterr().out)
    id_, data, *_ = said[0].split(" ", 1)
    assert [id_] == here["ids"]
    assert data.startswith("b'Order #1' {'orderId': '12345'} ") and data.endswith(" 1\n")
    assert "Order #2\nOrder #3\n" in said
    assert (here["page_view"].data, here["order_4"].data) == (b"page-view", b"Order #4")
    names = {one.name for one in here["queue"].get_all_subscriptions()}
    assert {"mails", "shipping", "thumbnails", "dead-orders-reader"} <= names


def test_the_shell_of_the_page_works_and_what_it_pushes_is_delivered(named_redis: RedisServer, tmp_path: Path) -> None:
    """Where the port of the endpoint is another one, and nothing else."""
    port = free_port()
    program = tmp_path / "bin" / "fleet"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m fleet.cli "$@"\n')
    program.chmod(0o755)
    environment = child_environment({"PATH": f"{program.parent}:/usr/bin:/bin", "FLEET_REDIS_URL": named_redis.url})
    first, *others = examples("sh")

    def shell(script: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", script.replace("8421", str(port))],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    shown = shell(first)
    assert "1 published\n" in shown
    assert re.search(r"orderId=12345 +Order #1\n", shown)
    (configuration,) = examples("json")
    (tmp_path / "router.json").write_text(configuration)
    parsed = parse_router_config(configuration.encode())
    assert (parsed.remarks, [queue.uri for queue in parsed.queues]) == ((), ["fleet://subscription/audit"])
    fleet = Fleet(tmp_path, {"FLEET_REDIS_URL": named_redis.url})
    journal = tmp_path / "endpoint.ndjson"
    for script in others:
        shell(script)
    with (
        fleet.running("endpoint", "--port", str(port), "--journal", str(journal)) as endpoint,
        fleet.running("up", "--config", "router.json", "--workers", "1", "--port", "0") as up,
    ):
        endpoint.says("Listening")
        up.says("Fleet is up")
        until(lambda: journal.exists() and '"end"' in journal.read_text(), why=up.text)
        (end,) = [line for line in map(json.loads, journal.read_text().splitlines()) if line["kind"] == "end"]
        assert (end["id"], end["group"], end["status"]) == ("17", "customer-3", 200)
        until(lambda: fleet.run("subscriptions", "show", "audit", "--json").document["messages"] == 0)
