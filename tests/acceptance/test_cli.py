"""Every command from outside: its shapes, its errors, its exit codes."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fleet.cli.main import fleet as command_family
from tests.acceptance.fleet_command import Fleet
from tests.servers.local import running_redis
from tests.waiting import until

POOL_FIELDS = (
    "poolCode totalProcessed totalSucceeded totalFailed totalRateLimited successRate activeWorkers availablePermits"
    " maxConcurrency queueSize maxQueueCapacity averageProcessingTimeMs"
)
QUEUE_FIELDS = (
    "name totalMessages totalConsumed totalFailed successRate currentSize throughput pendingMessages"
    " messagesNotVisible totalDeferred"
)
IN_FLIGHT_FIELDS = "messageId brokerMessageId queueId poolCode messageGroupId addedToInPipelineAt elapsedTimeMs state"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet that runs, with messages to an endpoint that takes connections and never answers: they stay in flight."""
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    with socket.create_server(("127.0.0.1", 0)) as silent, fleet.running("up") as up:
        up.says("Fleet is up")
        target = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        fleet.run("send", "default", "--target", target, "--group", "g", "--count", "5")
        until(lambda: bool(fleet.run("queues", "--json").document["default"]["currentSize"]), why=up.text)
        yield fleet
        # A clean stop would wait for the answers.
        up.popen.kill()
        up.popen.wait()


@pytest.fixture
def alone(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def test_ps_lists_every_process(fleet: Fleet) -> None:
    processes = fleet.run("ps", "--json").document
    assert sorted(p["role"] for p in processes) == ["coordinator", "server", "syncer", "worker", "worker"]
    for process in processes:
        assert list(process) == ["role", "name", "pid", "host", "startedAt", "queues", "pools", "epoch"]
    assert [p["queues"] for p in processes if p["role"] == "coordinator"] == [["default"]]


def test_pools_and_queues_have_the_public_fields(fleet: Fleet) -> None:
    pools = fleet.run("pools", "--json").document
    assert {code: list(pool) for code, pool in pools.items()} == {"DEFAULT-POOL": POOL_FIELDS.split()}
    queues = fleet.run("queues", "--json").document
    assert {name: list(queue) for name, queue in queues.items()} == {"default": QUEUE_FIELDS.split()}


def test_messages_in_flight_are_listed_with_their_state(fleet: Fleet) -> None:
    rows = fleet.run("inflight", "--json", "--queue", "default").document
    assert rows
    assert list(rows[0]) == IN_FLIGHT_FIELDS.split()
    assert {row["messageGroupId"] for row in rows} == {"g"}
    assert {row["state"] for row in rows} <= {"TRACKED", "QUEUED", "PROCESSING", "ACKING", "NACKING"}
    assert len(fleet.run("inflight", "--json", "--limit", "1").document) == 1
    assert fleet.run("inflight", "--pool", "other", "--json").document == []


def test_the_leader_is_a_coordinator_that_runs(fleet: Fleet) -> None:
    leader = fleet.run("leader", "--json").document
    assert list(leader) == ["instanceId", "role", "leader", "epoch", "ownedQueues", "redisAvailable"]
    names = [p["name"] for p in fleet.run("ps", "--json").document if p["role"] == "coordinator"]
    assert [leader["leader"]] == names
    assert leader["role"] == "PRIMARY"
    assert leader["ownedQueues"] == ["default"]


def test_workers_and_status_are_lists_for_programs_and_people(fleet: Fleet) -> None:
    assert len(fleet.run("workers", "--json").document) == 2
    status = fleet.run("status", "--json").document
    assert status["processes"] == {"coordinator": 1, "server": 1, "syncer": 1, "worker": 2}
    for command in ("status", "ps", "pools", "queues", "workers", "leader", "inflight"):
        result = fleet.run(command, COLUMNS="80")
        assert (result.code, result.err) == (0, ""), command
        assert max(map(len, result.out.splitlines())) <= 90, command


def test_the_shared_options_are_taken_before_and_after_the_command(fleet: Fleet, alone: Fleet) -> None:
    url = f"unix://{fleet.directory}/.fleet/redis.sock?db=0"
    before, after = alone.run("--redis", url, "ps", "--json"), alone.run("ps", "--json", "--redis", url)
    assert len(before.document) == len(after.document) == 5
    assert len(alone.run("ps", "--json", FLEET_REDIS_URL=url).document) == 5
    assert alone.run("--redis", "redis://127.0.0.1:1/0", "ps", "--redis", url).code == 0


def test_a_refused_line_is_named_and_stops_no_other(fleet: Fleet) -> None:
    lines = '{"id":"a","mediationTarget":"http://127.0.0.1:9/"}\nno json\n{"id":"b"}\n'
    result = fleet.run("send", "default", "--file", "-", "--journal", "refused.ndjson", input_text=lines)
    assert (result.code, result.out) == (1, "1 accepted, 2 refused\n")
    assert [line.split(":")[1].strip() for line in result.err.splitlines()] == ["line 2", "line 3"]
    journal = (fleet.directory / "refused.ndjson").read_text().splitlines()
    assert [json.loads(line)["id"] for line in journal] == ["a"]


def test_seeding_groups_as_asked(fleet: Fleet) -> None:
    result = fleet.run(
        "seed", "--count", "40", "--group-mode", "single", "--endpoint", "http://127.0.0.1:9/", "--journal", "s.ndjson"
    )
    assert (result.code, result.out) == (0, "40 accepted\n")
    records = [json.loads(line) for line in (fleet.directory / "s.ndjson").read_text().splitlines()]
    assert len(records) == 40
    assert len({record["group"] for record in records}) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["pools", "--jsn"], 2, "--jsn"),
        (["frobnicate"], 2, "frobnicate"),
        (["send"], 2, "QUEUE"),
        (["send", "q"], 2, "Nothing to send"),
        (["send", "q", "--body", "{}", "--file", "-"], 2, "exclude each other"),
        (["seed"], 2, "--count"),
        (["worker", "--processes", "0"], 2, "--processes"),
        (["ps"], 1, "no Redis"),
        (["ps", "--redis", "redis://127.0.0.1:1/0"], 1, "cannot be reached"),
        (["worker", "--redis", "redis://127.0.0.1:1/0"], 1, "cannot be reached"),
        (["coordinator", "--redis", "redis://127.0.0.1:1/0"], 1, "cannot be reached"),
        (["up", "--redis", "redis://127.0.0.1:1/0"], 1, "cannot be reached"),
        (["--redis", "redis://:hunter2@h:port/0", "ps"], 2, "not a Redis URL: redis://h:port/0"),
        (["up", "--config", "missing.json"], 1, "No such file"),
        (["ps", "--config", "missing.toml"], 1, "No such file"),
        (["config", "check", "missing.json"], 1, "No such file"),
        (["config", "check", "--config", "one.json,two.json"], 1, "two.json: No such file"),
        (["up", "--config", "one.json,two.json"], 1, "two.json: No such file"),
        (["config", "check"], 2, "FILE or URL"),
        (["verify", "missing.ndjson"], 2, "missing.ndjson"),
        (["seed", "--count", "1", "--endpoint", "quick", "--queue", "sqlite:///q.db?queue=q"], 1, "neither a URL"),
        (["send", "kafka://h/s", "--target", "http://h/"], 1, "no queue adapter"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_an_error_is_one_line(alone: Fleet, arguments: list[str], code: int, words: str) -> None:
    result = alone.run(*arguments)
    assert (result.code, result.out) == (code, "")
    assert words in result.err
    assert result.err.count("\n") == 1


def test_what_is_no_redis_url_is_a_wrong_call_of_every_command() -> None:
    for command in commands_of(command_family):
        result = CliRunner().invoke(command_family, [*command, "--redis", "foo"], prog_name="fleet")
        assert (result.exit_code, "Invalid value for '--redis': not a Redis URL: foo" in result.output) == (2, True), (
            command
        )


def test_a_wrong_password_is_refused_and_shown_nowhere(alone: Fleet) -> None:
    with running_redis() as server:
        server.client().config_set("requirepass", "sesame")
        for command in (["ps"], ["up"], ["worker"], ["coordinator"], ["syncer"]):
            result = alone.run(*command, "--redis", f"redis://:hunter2@127.0.0.1:{server.port}/0")
            assert result.code == 1
            assert "refuses us" in result.err
            assert result.err.count("\n") == 1
            assert "hunter2" not in result.err


def test_a_port_that_is_taken_is_named_in_one_line(alone: Fleet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = alone.run("endpoint", "--port", str(port))
    assert (answer.code, answer.err) == (1, f"fleet: cannot listen on 127.0.0.1 port {port}: Address already in use\n")


def test_every_command_has_help_with_an_example(alone: Fleet) -> None:
    listed = [line.split()[0] for line in alone.run("--help").out.partition("Commands:\n")[2].splitlines() if line]
    assert set(listed[: listed.index("Example:")]) == set(command_family.commands)
    for command in commands_of(command_family):
        result = CliRunner().invoke(command_family, [*command, "--help"], prog_name="fleet")
        assert result.exit_code == 0
        for words in ("Example:", "--redis", "--config"):
            assert words in result.output, command


def commands_of(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands_of(child, *path, name)


def test_a_configuration_is_checked_without_a_fleet(alone: Fleet) -> None:
    (alone.directory / "good.json").write_text('{"processingPools":[{"code":"A","concurency":3}]}')
    good = alone.run("config", "check", "good.json")
    assert good.code == 0
    assert "did you mean concurrency?" in good.out
    (alone.directory / "bad.json").write_text('{"processingPools":[{"code":"A"},{"code":"A"}]}')
    bad = alone.run("config", "check", "bad.json")
    assert (bad.code, bad.err.count("\n")) == (1, 1)
    assert alone.run("config", "check", "bad.json", "--json").document["ok"] is False


def test_the_doctor_finds_what_is_wrong(alone: Fleet) -> None:
    healthy = alone.run("doctor", "--json")
    assert healthy.code == 0, healthy.out
    assert {"python", "libcurl", "sqlite", "data", "redis", "config"} <= {f["subject"] for f in healthy.document}
    with running_redis("--maxmemory-policy", "allkeys-lru") as server:
        sick = alone.run("doctor", "--redis", server.url)
    assert sick.code == 1
    assert "set noeviction" in sick.out
    away = alone.run("doctor", "--redis", "redis://127.0.0.1:1/0")
    assert away.code == 1
    assert "fail  redis" in away.out
