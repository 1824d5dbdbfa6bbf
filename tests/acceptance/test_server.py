"""`fleet server` with real processes: what it answers."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import psutil
import requests

from tests.acceptance.site import SECRET, Site, message, source_is_empty
from tests.acceptance.test_cli import IN_FLIGHT_FIELDS, POOL_FIELDS, QUEUE_FIELDS
from tests.servers.ports import free_port
from tests.waiting import until

# Shapes --------------------------------------------------------------------------------------------


def test_every_answer_has_its_public_shape(site: Site) -> None:
    until(lambda: bool(site.get("/health")["status"] == "HEALTHY"), why=lambda: str(site.get("/monitoring/health")))
    assert set(site.get("/monitoring/health")) == {"status", "parts", "problems"}
    assert site.get("/health/live") == {"status": "UP"}
    assert site.get("/health/ready") == {"status": "READY", "redisAvailable": True}
    assert site.get("/health/startup") == {"status": "STARTED"}
    assert set(site.get("/monitoring/pool-stats")) == {"P", "LIMITED", "DEFAULT-POOL"}
    for pool in site.get("/monitoring/pool-stats").values():
        assert " ".join(pool) == POOL_FIELDS
    for queue in site.get("/monitoring/queue-stats").values():
        assert " ".join(queue) == QUEUE_FIELDS
    standby = site.get("/monitoring/standby-status")
    assert set(standby) >= {"instanceId", "role", "leader", "epoch", "ownedQueues", "redisAvailable"}
    assert (standby["role"], standby["ownedQueues"], standby["redisAvailable"]) == ("PRIMARY", ["orders"], True)
    assert site.get("/monitoring/circuit-breakers") == []
    assert site.get("/monitoring/consumer-health")["orders"]["isHealthy"] is True
    assert site.get("/monitoring/groups")["P"] == {"processing": 0, "queued": 0, "waiting": 0}
    (worker,) = site.get("/monitoring/workers")
    assert worker["redisAvailable"] is True
    assert {p["role"] for p in site.fleet.run("ps", "--json").document} == {"server", "syncer", "coordinator", "worker"}


def test_what_is_wrong_with_a_request_is_said_in_json(site: Site) -> None:
    for method, path, body, status in (
        ("GET", "/nowhere", None, 404),
        ("DELETE", "/warnings", None, 405),
        ("PUT", "/monitoring/pools/NOBODY", {"concurrency": 1}, 404),
        ("PUT", "/monitoring/pools/P", {"concurrency": 0}, 400),
        ("PUT", "/monitoring/pools/P", {"concurrency": True}, 400),
        ("PUT", "/monitoring/pools/P", {"rateLimitPerMinute": 0}, 400),
        ("PUT", "/monitoring/pools/P", {"rate": 1}, 400),
        ("PUT", "/monitoring/pools/P", {}, 400),
        ("PUT", "/monitoring/pools/P", [1], 400),
        ("POST", "/messages", [], 400),
        ("POST", "/messages", [{"id": "x"}], 400),
        ("POST", "/messages?queue=nobody", [message(site, "x")], 404),
        ("POST", "/messages", {"messages": [message(site, "x")], "queue": 7}, 400),
        ("POST", "/api/seed/messages", {"count": "many"}, 400),
        ("POST", "/api/seed/messages", {"endpoint": "nowhere"}, 400),
        ("POST", "/api/seed/messages?messageGroupMode=all", None, 400),
        ("POST", "/warnings/nobody/acknowledge", None, 404),
        ("POST", "/monitoring/circuit-breakers/https://a.example:443/reset", None, 404),
        ("GET", "/monitoring/in-flight-messages/check", None, 400),
        ("GET", "/monitoring/groups?pool=NOBODY", None, 404),
    ):
        answer = site.ask(method, path, body)
        assert answer.status_code == status, (method, path, body, answer.text)
        assert answer.json()["error"], (method, path)
    assert requests.post(site.address + "/messages", data=b"{" * (2**20 + 1), timeout=15).status_code == 413


# Messages ------------------------------------------------------------------------------------------


def test_messages_that_are_posted_are_delivered_and_the_rest_is_named(site: Site) -> None:
    one = site.post("/messages?queue=orders", message(site, "one"))
    assert one == {"queue": "orders", "accepted": 1, "refused": 0, "results": [{"id": "one", "accepted": True}]}
    three = site.post("/messages", [message(site, "two"), {"id": "no target"}, message(site, "three")], 207)
    assert [(r["id"], r["accepted"]) for r in three["results"]] == [("two", True), (None, False), ("three", True)]
    assert "mediationTarget" in three["results"][1]["error"]
    site.post("/messages", {"queue": "orders", "messages": [message(site, "four")]})
    until(lambda: bool(site.get("/monitoring/pool-stats")["P"]["totalSucceeded"] == 4 and source_is_empty(site)))


def test_a_message_under_way_is_shown_and_found_by_its_id(site: Site) -> None:
    port = str(free_port())
    with site.fleet.running("endpoint", "--port", port, "--latency-ms", "3000") as slow:
        slow.says("Listening")
        target = f"http://127.0.0.1:{port}/"
        site.post(
            "/messages",
            [message(site, id_, mediationTarget=target, messageGroupId=f"of-{id_}") for id_ in ("s1", "s2")],
        )
        found: list[dict[str, Any]] = []

        def under_way() -> bool:
            found[:] = site.get("/monitoring/in-flight-messages?poolCode=P")
            return [row["state"] for row in found] == ["PROCESSING"] * 2

        until(under_way)
        assert all(" ".join(row) == IN_FLIGHT_FIELDS for row in found)
        assert {row["messageId"] for row in found} == {"s1", "s2"}
        check = site.get("/monitoring/in-flight-messages/check?messageId=s2")
        assert (check["inPipeline"], [m["messageId"] for m in check["messages"]]) == (True, ["s2"])
        groups = site.get("/monitoring/groups?pool=P")
        assert {(g["messageGroupId"], g["state"], g["messages"], g["nextMessageId"]) for g in groups} == {
            ("of-s1", "PROCESSING", 1, "s1"),
            ("of-s2", "PROCESSING", 1, "s2"),
        }
        assert site.get("/monitoring/pool-stats")["P"]["activeWorkers"] == 2
        until(lambda: source_is_empty(site))
    assert site.get("/monitoring/in-flight-messages") == []
    assert site.get("/monitoring/in-flight-messages/check?messageId=s2")["inPipeline"] is False


def test_seeds_come_by_body_or_by_query(site: Site) -> None:
    target = f"{site.endpoint}/fast"
    by_query = f"/api/seed/messages?count=7&queue=orders&endpoint={target}&messageGroupMode=1of8"
    assert site.post(by_query) == {"queue": "orders", "accepted": 7, "refused": 0}
    body = {"count": 5, "queue": "orders", "endpoint": target, "messageGroupMode": "single"}
    assert site.post("/api/seed/messages", body)["accepted"] == 5
    until(lambda: bool(site.get("/monitoring/pool-stats")["DEFAULT-POOL"]["totalSucceeded"] == 12))


# Operators -----------------------------------------------------------------------------------------


def test_a_pool_is_changed_at_once_and_until_the_configuration_changes(site: Site) -> None:
    def limits() -> tuple[Any, Any]:
        pool = site.get("/monitoring/pool-stats")["P"]
        return pool["maxConcurrency"], site.metrics()['fleet_pool_concurrency{pool="P"}']

    answer = site.ask("PUT", "/monitoring/pools/P", {"concurrency": 9, "rateLimitPerMinute": 1200})
    assert answer.json() == {"poolCode": "P", "concurrency": 9, "rateLimitPerMinute": 1200, "maxQueueCapacity": 180}
    assert limits() == (9, 9)
    assert site.ask("PUT", "/monitoring/pools/P", {"rateLimitPerMinute": None}).json()["rateLimitPerMinute"] is None
    # The syncer publishes the same revision when it starts again.
    syncer = next(p["pid"] for p in site.fleet.run("ps", "--json").document if p["role"] == "syncer")
    psutil.Process(syncer).kill()
    until(lambda: any(p["role"] == "syncer" and p["pid"] != syncer for p in site.fleet.run("ps", "--json").document))

    def asked() -> bool:
        # Once it leads: the lease of the one that was killed has to lapse first.
        site.post("/config/reload", status=202)
        return "asked to read the configuration" in site.up.text()

    until(asked)
    assert limits() == (9, 9)
    file = site.fleet.directory / "router.json"
    document = json.loads(file.read_text())
    document["processingPools"].append({"code": "ONE-MORE"})
    file.write_text(json.dumps(document))
    until(lambda: limits() == (4, 4))


def test_warnings_are_shown_counted_and_acknowledged(site: Site) -> None:
    def open_ones() -> list[dict[str, Any]]:
        return [w for w in site.get("/warnings/unacknowledged") if w["category"] == "CONFIG_SYNC_FAILED"]

    file = site.fleet.directory / "router.json"
    good = file.read_text()
    file.write_text("{")
    until(lambda: len(open_ones()) == 1, why=site.up.text)
    file.write_text("{")  # the same once more: its time is another
    until(lambda: open_ones()[0]["count"] == 2, why=site.up.text)
    file.write_text(good)
    (warning,) = open_ones()
    assert {k: warning[k] for k in ("severity", "source", "acknowledged")} == {
        "severity": "WARN",
        "source": "syncer",
        "acknowledged": False,
    }
    assert "CONFIG_SYNC_FAILED" in site.fleet.run("warnings").out
    assert site.post(f"/warnings/{warning['id']}/acknowledge") == {"id": warning["id"], "acknowledged": True}
    assert open_ones() == []
    assert warning["id"] not in {w["id"] for w in site.fleet.run("warnings", "--json").document}
    assert warning["id"] in {w["id"] for w in site.fleet.run("warnings", "--all", "--json").document}
    assert {w["id"]: w["acknowledged"] for w in site.get("/warnings")}[warning["id"]] is True


def test_the_command_line_acknowledges_too(site: Site) -> None:
    site.fleet.run("warnings", "ack", "--all")
    nobody = site.fleet.run("warnings", "ack", "nobody")
    assert (nobody.code, nobody.err) == (1, "fleet: there is no warning nobody\n")
    for wrong in ((), ("nobody", "--all")):
        assert site.fleet.run("warnings", "ack", *wrong).code == 2
    until(lambda: site.fleet.run("warnings", "ack", "--all").out == "0 acknowledged\n")
    assert site.fleet.run("warnings").out == "No warnings.\n"


# Streams and texts ---------------------------------------------------------------------------------


def test_who_listens_gets_a_snapshot_each_second(site: Site) -> None:
    started = time.monotonic()
    with requests.get(site.address + "/events", stream=True, timeout=15) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        times = []
        for _ in range(3):
            event, data, _ = next(lines), next(lines), next(lines)
            assert event == b"event: snapshot"
            snapshot = json.loads(data.removeprefix(b"data: "))
            assert {"health", "pools", "queues", "workers", "warnings", "messages"} <= set(snapshot)
            times.append(snapshot["time"])
    assert len(set(times)) == 3
    assert 1.5 < time.monotonic() - started < 10


def test_metrics_have_the_public_names_and_labels(site: Site) -> None:
    text = site.ask("GET", "/metrics").text
    families = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    for name in ("received_total", "acked_total", "nacked_total", "malformed_total"):
        assert families.pop(f"fleet_queue_{name}") == "counter"
    broker = ("published", "pulled", "acked", "nacked", "expired", "dead_lettered", "full")
    feed = ("epochs", "events", "sent", "seen", "refused", "expired", "recovered")
    for name in ("delivery", "wait", "redis_call", "sqs_request"):
        assert families.pop(f"fleet_{name}_seconds") == "histogram"
    for name in ("requests", "messages", "throttled"):
        assert families.pop(f"fleet_sqs_{name}_total") == "counter"
    assert families.pop("fleet_sqs_tokens") == "gauge"
    assert {n for n, kind in families.items() if kind == "counter"} == {
        "fleet_messages_total",
        "fleet_pool_rate_limited_total",
        "fleet_leases_lost_total",
        "fleet_jobs_attempts_total",
        "fleet_jobs_claims_refused_total",
        *(f"fleet_feed_{name}_total" for name in feed),
        *(f"fleet_broker_{name}_total" for name in broker),
    }
    gauges = "pool_queued pool_active pool_concurrency pool_groups queue_tracked queue_oldest_seconds breaker_open"
    gauges += " feed_due_jobs feed_oldest_due_seconds"
    gauges += " leader lease_epoch config_age_seconds broker_messages broker_in_flight broker_oldest_seconds"
    assert {f"fleet_{name}" for name in gauges.split()} <= set(families)
    now = site.metrics()
    assert now["fleet_leader"] == 1
    assert now["fleet_config_age_seconds"] < 5
    assert now['fleet_lease_epoch{kind="leader"}'] == int(site.get("/monitoring/standby-status")["epoch"])
    assert re.search(r'^fleet_messages_total\{pool="P",outcome="SUCCESS"\} [1-9]', text, re.MULTILINE)
    assert re.search(r'^fleet_queue_acked_total\{queue="orders"\} [1-9]', text, re.MULTILINE)


def test_what_is_published_over_http_is_pushed_to_an_endpoint_and_counted(site: Site) -> None:
    run = site.fleet.run
    assert (run("topics", "add", "orders").code, run("subscriptions", "add", "audit", "orders").code) == (0, 0)
    router = site.fleet.directory / "router.json"
    before = router.read_text()
    document = json.loads(before)
    document["queues"].append({"queueName": "audit", "queueUri": "fleet://subscription/audit"})
    router.write_text(json.dumps(document))
    try:
        site.post("/config/reload", status=202)
        ids = site.post("/topics/orders/publish", {"messages": [{"data": message(site, "pushed")}]})["messageIds"]
        assert len(ids) == 1
        until(lambda: site.get("/monitoring/queue-stats").get("audit", {}).get("totalConsumed") == 1)
        acked = 'fleet_broker_acked_total{subscription="audit"}'
        until(lambda: site.metrics().get(acked) == 1)
        assert site.metrics()['fleet_broker_published_total{topic="orders"}'] == 1
        assert [one["messages"] for one in site.get("/monitoring/subscriptions")] == [0]
        refused = site.post("/messages?queue=audit", message(site, "sent"), status=400)
        assert "publish to its topic orders" in refused["error"]
        assert "Queue audit cannot be searched without receiving its messages; it holds 0" in run("explain", "no").out
    finally:
        router.write_text(before)
        site.post("/config/reload", status=202)


def test_counters_go_on_when_a_worker_ends_and_another_begins(site: Site) -> None:
    name = 'fleet_messages_total{pool="P",outcome="SUCCESS"}'
    before = site.metrics()[name]
    for round_ in range(2):
        for number in range(5):
            site.post("/messages", message(site, f"r{round_}{number}"))
        until(lambda done=5 * (round_ + 1): site.metrics()[name] == before + done)  # type: ignore[misc]
        worker = site.get("/monitoring/workers")[0]["pid"]
        # A clean end first, a crash then.
        psutil.Process(worker).send_signal(15 if round_ == 0 else 9)
        until(lambda old=worker: any(w["pid"] != old for w in site.get("/monitoring/workers")))  # type: ignore[misc]
        assert site.metrics()[name] == before + 5 * (round_ + 1)


def test_no_page_and_no_log_shows_a_secret(site: Site) -> None:
    site.post("/messages", message(site, "secret", path="/slow"))
    pages = ["/", "/health", "/metrics", "/warnings", "/monitoring/groups?pool=P"]
    pages += [f"/monitoring/{name}" for name in (
        "health", "queue-stats", "pool-stats", "in-flight-messages", "circuit-breakers", "standby-status",
        "consumer-health", "groups", "workers",
    )]  # fmt: skip
    for page in pages:
        assert SECRET not in site.ask("GET", page).text, page
    assert SECRET not in site.post("/messages", [{"authToken": SECRET, "id": ""}], 400)["error"]
    assert SECRET not in site.up.text()
