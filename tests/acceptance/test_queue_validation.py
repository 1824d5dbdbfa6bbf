"""Queues that cannot be read, told by a real syncer and by `fleet config check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.acceptance.fleet_command import Fleet
from tests.servers.local import running_redis
from tests.waiting import until


def test_queues_that_cannot_be_read_are_warnings_and_the_configuration_applies(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    queues = {
        "good": f"sqlite:///{tmp_path}/later/q.db?queue=good",
        "nowhere": f"sqlite:///{tmp_path}/file/q.db?queue=nowhere",
        "foreign": "gopher://me:s3cret@h/q",
    }
    document = {"queues": [{"queueName": name, "queueUri": uri} for name, uri in queues.items()]}
    (tmp_path / "router.json").write_text(json.dumps(document))
    with running_redis() as redis:
        fleet = Fleet(tmp_path, {"FLEET_REDIS_URL": redis.url})

        def told() -> dict[str, dict[str, Any]]:
            rows = fleet.run("warnings", "--json").document
            return {row["message"].split()[1].rstrip(":"): row for row in rows if row["category"] == "QUEUE_VALIDATION"}

        with fleet.running("syncer", "--config", "router.json") as syncer:
            syncer.says("3 queues")
            until(lambda: len(told()) == 2, why=syncer.text)
            found = told()
            assert {name: (row["severity"], row["source"], row["count"]) for name, row in found.items()} == {
                "nowhere": ("WARN", "syncer", 1),
                "foreign": ("WARN", "syncer", 1),
            }
            assert "no queue adapter for 'gopher'" in found["foreign"]["message"]
            assert "is not a folder that can be written to" in found["nowhere"]["message"]
            assert {
                queue["queueName"] for queue in fleet.run("config", "show", "--json").document["config"]["queues"]
            } == {*queues}
            assert not (tmp_path / "later").exists()
            assert syncer.stop() == 0
            assert "s3cret" not in syncer.text()


def test_a_check_names_queues_that_no_adapter_takes(tmp_path: Path) -> None:
    document = {"queues": [{"queueName": "foreign", "queueUri": "gopher://me:s3cret@h/q"}]}
    (tmp_path / "router.json").write_text(json.dumps(document))
    checked = Fleet(tmp_path).run("config", "check", "router.json")
    assert checked.code == 0
    assert "warn: queue foreign: no queue adapter for 'gopher'" in checked.out
    assert "s3cret" not in checked.out + checked.err


def test_a_check_needs_no_redis_for_queues_that_are_kept_there(tmp_path: Path) -> None:
    uris = ("fleet://own", "fleet://sqs/orders", "fleet://subscription/audit", "fleet://subscription/1")
    (tmp_path / "router.json").write_text(json.dumps({"queues": [{"queueUri": uri} for uri in uris]}))
    checked = Fleet(tmp_path).run("config", "check", "router.json", "--json").document
    assert len(checked["remarks"]) == 1
    assert checked["remarks"][0].startswith("queue fleet://subscription/1: fleet://subscription/NAME: ")


def test_a_visibility_that_does_not_outlast_a_takeover_is_warned_about_with_the_reason(tmp_path: Path) -> None:
    queues = {
        "hasty": (f"sqlite:///{tmp_path}/q.db?queue=hasty", 19),
        "calm": (f"sqlite:///{tmp_path}/q.db?queue=calm", 20),
        "amq": ("stomp://127.0.0.1:1/q", 1),
    }
    document = {
        "queues": [{"queueName": name, "queueUri": uri, "visibilityTimeout": s} for name, (uri, s) in queues.items()]
    }
    (tmp_path / "router.json").write_text(json.dumps(document))
    reason = "queue hasty: visibilityTimeout is 19 s, less than twice lease.ttl_ms (10 s)"
    alone = Fleet(tmp_path)
    checked = alone.run("config", "check", "router.json")
    assert (checked.code, checked.out.count("visibilityTimeout")) == (0, 1)
    assert f"warn: {reason}" in checked.out and "set it to 20 s or more" in checked.out
    calmer = Fleet(tmp_path, {"FLEET_LEASE_TTL_MS": "9000"})
    assert "visibilityTimeout" not in calmer.run("config", "check", "router.json").out
    assert reason in alone.run("doctor", "--config", "router.json").out
    with running_redis() as redis:
        fleet = Fleet(tmp_path, {"FLEET_REDIS_URL": redis.url})
        with fleet.running("syncer", "--config", "router.json") as syncer:
            until(lambda: reason in syncer.text(), why=syncer.text)
            rows = fleet.run("warnings", "--json").document
            assert [row["message"].split(":")[0] for row in rows if "visibilityTimeout" in row["message"]] == [
                "queue hasty"
            ]
            assert syncer.stop() == 0
