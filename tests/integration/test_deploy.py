"""The files of `deploy/` as an operator gets them: a whole fleet works under their rights, and under no fewer."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
import requests

from fleet.cli.main import fleet as commands
from fleet.local.up import COORDINATOR_STOPS_S, SERVER_STOPS_S, SYNCER_STOPS_S, WORKER_STOPS_S
from fleet.local.up_feed import FEED_STOPS_S
from fleet.server.app import ROUTES
from tests.member import Member
from tests.servers.local import RedisCluster, RedisServer, running_redis
from tests.stage import FLEET, Stage
from tests.waiting import until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PASSWORD = "only for this test"
SERVICES = sorted(DEPLOY.glob("*.service"))
STOPS_WITHIN_S = {
    "syncer": SYNCER_STOPS_S,
    "coordinator": COORDINATOR_STOPS_S,
    "worker": WORKER_STOPS_S,
    "server": SERVER_STOPS_S,
    "feed": FEED_STOPS_S,
    "sqs": SERVER_STOPS_S,
    "pubsub": SERVER_STOPS_S,
}
LOOKS = ("status", "ps", "pools", "queues", "workers", "leader", "inflight", "doctor")


@dataclass
class GuardedRedis(RedisServer):
    """A Redis with the rights of deploy/redis.acl: the fleet logs in as `fleet`, the test as `admin`."""

    def __post_init__(self) -> None:
        self.url = f"redis://fleet:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, username="admin", password=PASSWORD, decode_responses=True)


def rights(*, without: str = "") -> str:
    """The ACL file with a password put in the way that docs/redis.md says."""
    digest = hashlib.sha256(PASSWORD.encode()).hexdigest()
    text = (DEPLOY / "redis.acl").read_text().replace("resetpass", f"resetpass #{digest}")
    return text.replace(f" {without}", "") if without else text


def configuration(directory: Path) -> Path:
    """deploy/redis.conf without what is only right on a server: its address and its folders."""
    lines = (DEPLOY / "redis.conf").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("bind ", "port ", "dir ", "aclfile "))]
    assert len(lines) - len(kept) == 4
    file = directory / "redis.conf"
    file.write_text("\n".join(kept) + "\n")
    return file


@pytest.fixture
def guarded_redis(tmp_path: Path) -> Iterator[GuardedRedis]:
    acl = tmp_path / "redis.acl"
    acl.write_text("user default on nopass ~* &* +@all\n")
    with running_redis("--aclfile", str(acl), "--include", str(configuration(tmp_path))) as server:
        with server.client() as client:
            acl.write_text(rights())
            client.acl_load()
        yield GuardedRedis(server.server, server.port)


def denied(client: redis.Redis) -> list[str]:
    """What the server refused to the fleet. redis-py tells its own name and version unasked, and does not mind a no."""
    refused = {str(entry["object"]) for entry in client.acl_log(128)}
    return sorted(name for name in refused if not name.startswith("client|"))


def fleet(stage: Stage, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [FLEET, *arguments, "--redis", stage.redis_server.url, "--config", str(stage.directory / "router.json")],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=stage.directory,
    )


@pytest.mark.parametrize("source_uri", ["", "fleet://orders"])
def test_a_whole_fleet_works_with_the_rights_and_the_settings_of_deploy(
    guarded_redis: GuardedRedis, tmp_path: Path, source_uri: str
) -> None:
    stage = Stage(tmp_path, guarded_redis, rate=100_000, source_uri=source_uri)
    try:
        stage.start_endpoint(latency_ms=2)
        stage.configure()
        stage.send_messages(300, 20)
        stage.start("coordinator")
        stage.start("worker")
        look_at_every_page(stage.start("server", "--port", "0"))
        for command in LOOKS:
            looked = fleet(stage, command)
            assert looked.returncode == 0 or command == "doctor", (command, looked.stderr)
            assert "permission" not in looked.stdout + looked.stderr, (command, looked.stdout, looked.stderr)
        stage.wait_drained(90)
    finally:
        stage.stop()
    assert stage.verdict().ok, stage.verdict()
    with guarded_redis.client() as client:
        assert denied(client) == []
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def look_at_every_page(server: Member) -> None:
    until(lambda: "answers at" in server.text(), 15, server.text)
    address = server.text().split("answers at ")[1].split()[0]
    for route in ROUTES:
        if "GET" in (route.methods or ()) and route.path != "/events":
            answer = requests.get(f"{address}{route.path}?messageId=x", timeout=15)
            assert answer.status_code == 200, (route.path, answer.text)
    assert requests.post(f"{address}/config/reload", timeout=15).status_code == 202
    assert requests.post(f"{address}/warnings/acknowledge-all", timeout=15).status_code == 200


def test_a_command_beyond_the_rights_is_refused(guarded_redis: GuardedRedis) -> None:
    with redis.Redis.from_url(guarded_redis.url) as client:
        for command in ("GETDEL {p:A}:x", "KEYS *", "FLUSHALL", "CONFIG GET *", "HSET other a 1", "PUBLISH x y"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command.split())
    with redis.Redis(port=guarded_redis.port) as stranger, pytest.raises(redis.exceptions.AuthenticationError):
        stranger.ping()


def test_the_file_lets_nobody_in_before_a_password_is_put_into_it() -> None:
    assert not re.search(r"nopass| >| #", (DEPLOY / "redis.acl").read_text())


def test_every_command_that_is_allowed_is_one_that_is_used() -> None:
    allowed = set(re.findall(r" \+([a-z]+)", (DEPLOY / "redis.acl").read_text()))
    state = ROOT / "fleet" / "state"
    lua = "\n".join(file.read_text() for file in (state / "lua").glob("**/*.lua"))
    used = {name.lower() for name in re.findall(r"(?:redis\.call|call_many)\('([A-Z]+)'", lua)}
    python = "\n".join(file.read_text() for file in state.glob("*.py"))
    used |= set(re.findall(r"(?:client|pipeline|pubsub)\.([a-z]+)[(,]", python)) - {
        "pubsub",
        "pipeline",
        "execute",
        "aclose",
    }
    used = {"del" if name == "delete" else name for name in used}
    # What redis-py sends by itself: at the end of a subscription, and to learn about a Cluster.
    used |= {"unsubscribe", "command", "cluster"}
    assert (allowed - used, used - allowed) == (set(), set())


def test_a_right_that_is_missing_is_named_to_the_user(guarded_redis: GuardedRedis, tmp_path: Path) -> None:
    (tmp_path / "redis.acl").write_text(rights(without="+info"))
    with guarded_redis.client() as client:
        client.acl_load()
    stage = Stage(tmp_path, guarded_redis)
    (tmp_path / "router.json").write_text("{}")
    answer = fleet(stage, "status")
    assert answer.returncode == 1
    assert "refuses us" in answer.stderr
    assert "info" in answer.stderr
    assert PASSWORD not in answer.stderr


def test_the_rights_are_enough_for_a_cluster(redis_cluster: RedisCluster, tmp_path: Path) -> None:
    line = next(line for line in rights().splitlines() if line.startswith("user fleet "))
    try:
        for node in redis_cluster.nodes:
            with node.client() as client:
                client.execute_command("ACL", "SETUSER", "fleet", *line.split()[2:])
                client.acl_log_reset()
        (tmp_path / "router.json").write_text('{"processingPools":[{"code":"A","concurrency":2}]}')
        stage = Stage(tmp_path, GuardedRedis(redis_cluster.nodes[0].server, redis_cluster.nodes[0].port))
        syncer = stage.start("syncer", "--config", str(tmp_path / "router.json"))
        stage.start("coordinator")
        stage.start("worker")
        server = stage.start("server", "--port", "0")
        try:
            wait_for_a_fleet(stage, "A")
            look_at_every_page(server)
        finally:
            stage.stop()
        assert "refuses" not in syncer.text()
        for node in redis_cluster.nodes:
            with node.client() as client:
                assert denied(client) == []
    finally:
        for node in redis_cluster.nodes:
            with node.client() as client, suppress(redis.RedisError):
                client.acl_deluser("fleet")


def wait_for_a_fleet(stage: Stage, pool: str) -> None:
    seen = ["nothing asked"]

    def there() -> bool:
        pools, processes = fleet(stage, "pools", "--json"), fleet(stage, "ps", "--json")
        seen[:] = [pools.stdout, pools.stderr, processes.stdout, processes.stderr]
        roles = {process["role"] for process in json.loads(processes.stdout or "[]")}
        return f'"{pool}"' in pools.stdout and roles == {"syncer", "coordinator", "worker", "server"}

    until(there, 60, lambda: "\n".join(seen + [member.text() for member in stage.members]), every_s=0.2)


def directives(unit: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line and line[0] not in "#[")


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_a_unit_starts_a_command_that_exists_and_gives_it_time_to_end(unit: Path) -> None:
    program, role, *_ = directives(unit)["ExecStart"].split()
    assert program.endswith("/.venv/bin/fleet")
    assert role in commands.commands
    # SIGKILL before that would make duplicates of requests that were about to end.
    assert int(directives(unit)["TimeoutStopSec"]) > STOPS_WITHIN_S[role]
    assert directives(unit)["Restart"] == "always"
