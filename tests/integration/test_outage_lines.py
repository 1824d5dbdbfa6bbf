"""What every process of a fleet says while its Redis refuses writes, and when it takes them again."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.fleet_command import Fleet
from tests.servers.local import RedisServer
from tests.servers.refusing import REFUSALS
from tests.servers.sentinels import running_sentinels
from tests.waiting import until

ROLES = ("coordinator", "syncer", "server", "worker")
BACK = "Redis is back"


def said_by(role: str, words: str, text: str) -> list[str]:
    return re.findall(rf"^\S+ [A-Z]+ ({role}-\d+ .*{words}.*)$", text, re.MULTILINE)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    config = {"queues": [{"queueName": "own", "queueUri": "fleet://own"}], "processingPools": [{"code": "A"}]}
    (tmp_path / "router.json").write_text(json.dumps(config))
    return Fleet(tmp_path, {"FLEET_LEASE_TTL_MS": "2000"})


@pytest.mark.parametrize("code", ["NOREPLICAS", "READONLY"])
def test_each_process_says_an_outage_and_its_end_and_no_line_twice(
    redis_server: RedisServer, fleet: Fleet, code: str
) -> None:
    with fleet.running("up", "--config", "router.json", "--workers", "1", FLEET_REDIS_URL=redis_server.url) as up:
        up.says("Fleet is up")
        before = len(up.text())
        with REFUSALS[code](redis_server):
            until(lambda: all(said_by(role, code, up.text()) for role in ROLES), why=up.text)
        until(lambda: all(said_by(role, BACK, up.text()) for role in ROLES), why=up.text)
        assert up.stop() == 0
        text = up.text()[before:]
    lines = Counter(line for role in ROLES for line in said_by(role, code, text))
    assert lines.most_common(1)[0][1] == 1, text
    assert "@user_script" not in text
    assert {role: len(said_by(role, BACK, text)) for role in ROLES} == dict.fromkeys(ROLES, 1), text


def test_each_process_names_the_new_master_once(fleet: Fleet, tmp_path: Path) -> None:
    with running_sentinels(tmp_path) as watched:
        url = watched.url
        with fleet.running("up", "--config", "router.json", "--workers", "1", FLEET_REDIS_URL=url) as up:
            up.says("Fleet is up")
            watched.wait_in_sync()
            port = watched.fail_over().port
            words = f"the master of Redis is 127.0.0.1:{port} now"
            until(lambda: all(said_by(role, words, up.text()) for role in ROLES), why=up.text)
            assert up.stop() == 0
            assert {role: len(said_by(role, words, up.text())) for role in ROLES} == dict.fromkeys(ROLES, 1), up.text()
