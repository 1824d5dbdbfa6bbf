"""`fleet pubsub` as its user runs it, with the example of docs/broker.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from fleet.cli.base import run_command
from fleet.cli.main import fleet as commands
from tests.acceptance.fleet_command import Fleet
from tests.acceptance.test_broker_page import DOOR, examples
from tests.servers.local import RedisServer
from tests.servers.ports import free_port


@pytest.fixture
def fleet(tmp_path: Path, redis_server: RedisServer) -> Fleet:
    return Fleet(tmp_path, {"FLEET_LEASE_TTL_MS": "2000", "FLEET_REDIS_URL": redis_server.url})


def test_the_example_of_the_page_works_as_it_stands(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = examples("python", of=DOOR)
    with fleet.running("pubsub", "--port", "0") as door:
        door.says("answers at")
        (address,) = re.findall(r"answers at (127\.0\.0\.1:\d+)", door.text())
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", address)
        here: dict[str, Any] = {}
        exec(compile(example, "docs/broker.md", "exec"), here)
        assert re.fullmatch(r"published [\w-]+\nreceived Invoice #1 for Ada\n", capsys.readouterr().out)
        assert "pubsub" in {process["role"] for process in fleet.run("ps", "--json").document}
        (topic,) = fleet.run("topics", "list", "--json").document
        assert topic["name"] == "invoices"
        assert door.stop() == 0


def test_an_address_that_others_reach_is_taken_with_a_warning(fleet: Fleet) -> None:
    with fleet.running("pubsub", "--host", "0.0.0.0", "--port", "0") as door:
        door.says("asks nobody who he is")
        assert door.stop() == 0


def test_a_port_that_is_taken_is_said_in_one_line(fleet: Fleet) -> None:
    port = str(free_port())
    with fleet.running("pubsub", "--port", port) as door:
        door.says("answers at")
        second = fleet.run("pubsub", "--port", port)
    assert (second.code, second.err) == (
        1,
        f"fleet: cannot listen on 127.0.0.1 port {port}: Address already in use\n",
    )


@pytest.mark.parametrize("package", ["grpc", "google.pubsub_v1"])
def test_without_googles_packages_one_line_says_what_is_missing(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [one for one in sys.modules if one.startswith("fleet.broker.pubsub")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(sys, "argv", ["fleet", "pubsub"])
    assert run_command(commands) == 1
    assert capsys.readouterr().err == f"fleet: the Pub/Sub door needs {package}, which scripts/setup pubsub installs\n"
