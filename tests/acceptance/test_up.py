"""`fleet up` and `fleet demo` with real processes: what they start, survive and leave behind."""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path

import psutil
import pytest
import redis

from tests.acceptance.fleet_command import Fleet, Process
from tests.servers.java import QUICK
from tests.servers.ports import free_port
from tests.waiting import PATIENCE_S, until

UP = "Fleet is up"
DEMO_PATIENCE_S = 300.0
"""It starts Spark twice: seconds where it is quiet, a minute each where it is not."""


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path, {"FLEET_LEASE_TTL_MS": "2000", "JDK_JAVA_OPTIONS": QUICK})


def pid_of(fleet: Fleet, role: str) -> int:
    found: list[int] = [p["pid"] for p in fleet.run("ps", "--json").document if p["role"] == role]
    return found[0]


def delivered(fleet: Fleet) -> int:
    pools = fleet.run("pools", "--json").document
    return sum(pool["totalSucceeded"] for pool in pools.values())


def source_is_empty(fleet: Fleet) -> bool:
    queue = fleet.run("queues", "--json").document["default"]
    return bool(queue["pendingMessages"] == 0 and queue["messagesNotVisible"] == 0)


def assert_gone(family: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
    assert alive == []


def test_messages_sent_are_delivered_and_a_stop_leaves_nothing(fleet: Fleet, tmp_path: Path) -> None:
    port = free_port()
    with fleet.running("endpoint", "--port", str(port), "--journal", "got.ndjson") as endpoint:
        endpoint.says("Listening")
        with fleet.running("up") as up:
            up.says(UP)
            family = up.family()
            assert len(family) == 6
            sent = fleet.run(
                "send", "default", "--target", f"http://127.0.0.1:{port}/", "--group", "g", "--count", "300",
                "--journal", "sent.ndjson",
            )  # fmt: skip
            assert (sent.code, sent.out) == (0, "300 accepted\n")
            until(lambda: source_is_empty(fleet), why=up.text)
            # Of messages that we made up ourselves nobody is warned.
            assert fleet.run("warnings", "--json").document == []
            assert up.stop() == 0
            assert_gone(family)
            assert not (tmp_path / ".fleet" / "redis.sock").exists()
    verdict = fleet.run("verify", "sent.ndjson", "got.ndjson", "--duplicates", "0", "--json")
    assert (verdict.code, verdict.document["accepted"]) == (0, 300)


def test_ctrl_c_is_a_clean_stop(fleet: Fleet) -> None:
    with fleet.running("up", "--workers", "1") as up:
        up.says(UP)
        family = up.family()
        assert up.stop(signal.SIGINT) == 0
        assert_gone(family)
        assert "Traceback" not in up.text()


def test_a_worker_a_coordinator_and_redis_that_are_killed_come_back(fleet: Fleet) -> None:
    port = free_port()
    with fleet.running("endpoint", "--port", str(port)) as endpoint, fleet.running("up", "--workers", "1") as up:
        endpoint.says("Listening")
        up.says(UP)
        for role in ("worker", "coordinator", "syncer"):
            first = pid_of(fleet, role)
            psutil.Process(first).kill()
            up.says(f"{role} ended by SIGKILL")
            until(lambda role=role, first=first: pid_of_other(fleet, role, first), why=up.text)  # type: ignore[misc]
        redis = next(child for child in up.family() if "redis" in child.name())
        redis.kill()
        up.says("the embedded Redis ended; it starts again")
        until(lambda: fleet.run("ps").code == 0, why=up.text)
        fleet_sends_and_delivers(fleet, up, port)


def pid_of_other(fleet: Fleet, role: str, first: int) -> bool:
    return any(p["role"] == role and p["pid"] != first for p in fleet.run("ps", "--json").document)


def fleet_sends_and_delivers(fleet: Fleet, up: Process, port: int) -> None:
    before = delivered(fleet)
    fleet.run("send", "default", "--target", f"http://127.0.0.1:{port}/", "--count", "20")
    until(lambda: delivered(fleet) >= before + 20 and source_is_empty(fleet), why=up.text)


def test_children_die_with_a_supervisor_that_is_killed(fleet: Fleet) -> None:
    with fleet.running("up", "--workers", "1") as up:
        up.says(UP)
        family = up.family()
        up.popen.kill()
        up.popen.wait()
        assert_gone(family)


def test_a_worker_command_supervises_as_many_as_it_is_told(fleet: Fleet) -> None:
    with fleet.running("up", "--workers", "1") as up:
        up.says(UP)
        with fleet.running("worker", "--processes", "2", "--pool", "DEFAULT-*") as workers:
            until(lambda: len(fleet.run("workers", "--json").document) == 3, why=workers.text)
            family = workers.family()
            assert len(family) == 2
            assert workers.stop() == 0
            assert_gone(family)


def test_a_bad_configuration_ends_up_with_one_clear_error(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"processingPools":[{"code":"A","concurrency":-1}]}')
    result = fleet.run("up", "--config", "bad.json")
    assert result.code == 1
    assert re.fullmatch(r"fleet: .*bad.json: processingPools\[0\].concurrency: must be an integer.*\n", result.err)


def test_a_configuration_that_goes_bad_later_stays_out(fleet: Fleet, tmp_path: Path) -> None:
    config = tmp_path / "router.json"
    queue = {"queueName": "q", "queueUri": f"sqlite:///{tmp_path}/q.db?queue=q"}
    config.write_text(json.dumps({"queues": [queue], "processingPools": [{"code": "A"}]}))
    with fleet.running("up", "--config", "router.json", "--workers", "1") as up:
        up.says(UP)
        config.write_text("{")
        up.says("the last good configuration stays")
        assert set(fleet.run("pools", "--json").document) == {"A", "DEFAULT-POOL"}
        config.write_text(json.dumps({"queues": [queue], "processingPools": [{"code": "B"}]}))
        until(lambda: set(fleet.run("pools", "--json").document) == {"B", "DEFAULT-POOL"}, why=up.text)


def test_a_syncer_that_dies_while_its_configuration_is_bad_ends_no_fleet_that_is_up(
    fleet: Fleet, tmp_path: Path
) -> None:
    config = tmp_path / "router.json"
    queue = {"queueName": "q", "queueUri": f"sqlite:///{tmp_path}/q.db?queue=q"}
    config.write_text(json.dumps({"queues": [queue], "processingPools": [{"code": "A"}]}))
    with fleet.running("up", "--config", "router.json", "--workers", "1") as up:
        up.says(UP)
        first = pid_of(fleet, "syncer")
        config.write_text("{")
        psutil.Process(first).kill()
        up.says("syncer ended with exit code 1; starts again")
        config.write_text(json.dumps({"queues": [queue], "processingPools": [{"code": "B"}]}))
        until(lambda: "B" in fleet.run("pools", "--json").document, why=up.text)


def test_a_second_fleet_in_the_same_folder_says_so(fleet: Fleet) -> None:
    with fleet.running("up", "--workers", "1") as up:
        up.says(UP)
        second = fleet.run("up")
        assert second.code == 1
        assert "already running" in second.err
        assert second.err.count("\n") == 1


@pytest.mark.parametrize("java", [True, False])
def test_up_runs_the_feed_where_it_can_and_says_where_it_cannot(fleet: Fleet, tmp_path: Path, java: bool) -> None:
    no_java = {} if java else {"JAVA_HOME": "", "PATH": str(tmp_path / "bin")}
    if not java:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "redis-server").symlink_to(str(shutil.which("redis-server")))
    with fleet.running("up", "--workers", "1", FLEET_FEED_ENABLED="true", **no_java) as up:
        up.says(UP)
        family = up.family()
        if java:
            up.says("leading")
            assert "1 worker, the feed, Redis" in up.text()
            assert set(fleet.run("queues", "--json").document) == {"default", "dispatch"}
        else:
            assert "the feed does not run: there is no Java" in up.text()
            assert "1 worker, Redis" in up.text()
        assert up.stop() == 0
        assert_gone(family)


def test_up_starts_and_stops_the_feed_as_its_queue_comes_and_goes(fleet: Fleet, tmp_path: Path) -> None:
    config = tmp_path / "router.json"
    mine = {"queueName": "mine", "queueUri": f"sqlite:///{tmp_path}/queues.db?queue=mine"}
    jobs = {"queueName": "dispatch", "queueUri": "fleet://dispatch"}

    def configure(*queues: dict[str, str]) -> None:
        config.write_text(json.dumps({"queues": queues, "processingPools": []}))

    configure(mine)
    with fleet.running(
        "up", "--workers", "1", FLEET_CONFIG_SOURCE=str(config), FLEET_FEED_ENABLED="true"
    ) as up:  # fmt: skip
        up.says("1 worker, Redis")
        without = up.family()
        for times in (1, 2):
            configure(mine, jobs)
            until(lambda times=times: up.text().count("leading\n") == times, why=up.text)  # type: ignore[misc]
            (feed,) = [one for one in up.family() if one not in without]
            assert feed.cmdline()[-2:] == ["feed", "run"]
            configure(mine)
            assert_gone([feed])
        assert up.text().count("no queue is fleet://dispatch any more: the feed stops") == 2
        assert up.stop() == 0
        assert_gone(without)
        assert "starts again" not in up.text()


def test_the_demo_delivers_events_in_order_reports_runs_on_and_leaves_nothing(fleet: Fleet, tmp_path: Path) -> None:
    with fleet.running("demo", "--keep", "--messages", "300", "--groups", "12") as demo:
        demo.says("Ctrl-C stops it.", patience_s=DEMO_PATIENCE_S)
        said, family = demo.text(), demo.family()
        for words in (
            "All 300 events were delivered, each group in order.",
            "all 12 groups",
            "300 of 300 accepted, 0 lost, 0 out of order, 0 at the same time, 0 twice",
            "300 of 300 messages delivered, every group in order",
        ):
            assert words in said, said
        config = re.search(r"FLEET_CONFIG='(.*)'", said)
        assert config is not None
        assert fleet.run("status", "--config", config[1]).code == 0
        assert fleet.run("jobs", "stats", "--json", "--config", config[1]).document["COMPLETED"] == 300
        assert demo.stop(signal.SIGINT) == 0
        assert_gone(family)
        assert not Path(config[1]).parent.exists()
    page = (tmp_path / ".fleet" / "demo-report" / "report.html").read_text()
    # Of both who saw it: the server that sent them, and the endpoint that took them.
    assert "300 messages in 12 groups, by the server&#x27;s attempts" in page
    assert "300 messages in 12 groups, by the endpoints&#x27; journals" in page


def test_a_wiped_redis_has_its_configuration_back_in_seconds(fleet: Fleet, tmp_path: Path) -> None:
    with fleet.running("up", "--workers", "1") as up:
        up.says(UP)
        before = fleet.run("status", "--json").document["configRevision"]
        with redis.Redis(unix_socket_path=str(tmp_path / ".fleet" / "redis.sock"), decode_responses=True) as client:
            client.flushall()
            until(lambda: bool(client.hget("{fleet}:config", "revision")), why=up.text)
        until(lambda: "DEFAULT-POOL" in fleet.run("pools", "--json").document, why=up.text)
        assert int(fleet.run("status", "--json").document["configRevision"]) > int(before)
