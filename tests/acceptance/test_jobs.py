"""Dispatch jobs with real processes: added by command, processed by `fleet server`, on both databases."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.acceptance.fleet_command import Fleet, Process
from tests.acceptance.office import Office, an_office
from tests.acceptance.site import address_in
from tests.acceptance.webhooks import Target, a_target
from tests.servers.local import RedisServer
from tests.waiting import until

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


@pytest.fixture
def office(tmp_path: Path, redis_server: RedisServer, database_url: str) -> Office:
    # Roles are asked of people; the processing endpoint has a token of its own.
    return an_office(tmp_path, redis_server, database_url, FLEET_SERVER_TOKEN="for operators")


@pytest.fixture
def target() -> Iterator[Target]:
    with a_target() as made:
        yield made


def test_a_job_is_delivered_once_and_its_attempt_can_be_seen(office: Office, target: Target) -> None:
    id_ = office.add(targetUrl=target.url, payload={"order": 17, "price": "ü"}, messageGroup="order-17", sequence=3)
    with office.server() as (server, address):
        first, again = office.process(address, id_), office.process(address, id_)
        assert (first.status_code, first.json()) == (200, {"ack": True, "message": "COMPLETED"})
        assert (again.status_code, again.json()["ack"]) == (200, True)
        assert server.stop() == 0
        assert "Traceback" not in server.text() and office.token(id_) not in server.text()
    (got,) = target.received
    assert json.loads(got.body) == {"order": 17, "price": "ü"}
    named = {name: got.headers[name] for name in ("fleet-job", "fleet-group", "fleet-sequence", "fleet-attempt")}
    assert list(named.values()) == [id_, "order-17", "3", "1"]
    assert got.headers["content-type"] == "application/json"
    shown = office.show(id_)
    assert shown["status"] == "COMPLETED"
    (attempt,) = shown["attempts"]
    assert (attempt["attempt"], attempt["statusCode"], attempt["outcome"]) == (1, 200, "SUCCESS")


def test_a_wrong_token_is_401_and_changes_nothing(office: Office, target: Target) -> None:
    id_, other = office.add(targetUrl=target.url), office.add(targetUrl=target.url)
    with office.server() as (server, address):
        for token in ("", "wrong", office.token(other), "for operators", office.token(id_).upper()):
            assert office.process(address, id_, token=token).status_code == 401
        assert "FLEET_DATABASE_APP_KEY" in server.text()
    assert target.received == []
    assert office.show(id_)["status"] == "PENDING" and office.show(id_)["attempts"] == []


@pytest.mark.parametrize(
    ("query", "body"),
    [("", '{"messageId":"a"}'), ("?attempt=0", '{"messageId":"a"}'), ("?attempt=x", '{"messageId":"a"}'),
     ("?attempt=1", "{}"), ("?attempt=1", "[]"), ("?attempt=1", "nope"), ("?attempt=1", '{"messageId":5}')],
)  # fmt: skip
def test_a_call_that_means_no_job_is_400(office: Office, query: str, body: str) -> None:
    with office.server() as (_, address):
        answer = requests.post(f"{address}/api/dispatch/process{query}", data=body, timeout=15)
    assert answer.status_code == 400 and list(answer.json()) == ["error"]


def test_jobs_of_a_server_killed_in_mid_delivery_are_claimed_again(office: Office, target: Target) -> None:
    target.answers.clear()
    id_ = office.add(targetUrl=target.url, timeoutSeconds=60)
    with office.server() as (server, address), _killing(server, target), pytest.raises(requests.RequestException):
        office.process(address, id_)
    assert office.show(id_)["status"] == "IN_PROGRESS"
    target.answers.set()
    with office.server() as (_, address):
        early = office.process(address, id_).json()
        assert early["ack"] is False and 60 < early["delaySeconds"] <= 75
        assert len(target.received) == 1
        office.forget_claim(id_)
        assert office.process(address, id_).json() == {"ack": True, "message": "COMPLETED"}
    assert len(target.received) == 2
    assert [attempt["outcome"] for attempt in office.show(id_)["attempts"]] == ["SUCCESS"]


@contextmanager
def _killing(server: Process, target: Target) -> Iterator[None]:
    def kill() -> None:
        until(lambda: bool(target.received))
        server.popen.send_signal(signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        killer.join()


def test_a_target_that_fails_is_retried_later_and_by_hand_after_its_last_retry(office: Office, target: Target) -> None:
    target.status = 503
    id_ = office.add(targetUrl=target.url, maxRetries=1)
    with office.server() as (_, address):
        assert office.process(address, id_).json() == {"ack": True, "message": "PENDING"}
        assert office.fleet.run("jobs", "retry", id_).code == 1
        assert office.process(address, id_, attempt=2).json() == {"ack": True, "message": "ERROR"}
        assert office.fleet.run("jobs", "list", "--status", "ERROR", "--json").document[0]["lastError"] == "HTTP 503"
        assert office.fleet.run("jobs", "retry", id_).out == "1 job will be delivered again.\n"
        target.status = 200
        assert office.process(address, id_, attempt=3).json() == {"ack": True, "message": "COMPLETED"}
    assert [got.headers["fleet-attempt"] for got in target.received] == ["1", "2", "3"]


def test_a_message_in_a_queue_goes_through_a_worker_and_the_server_to_the_target_signed(
    tmp_path: Path, target: Target, database_url: str
) -> None:
    fleet = Fleet(tmp_path, {"FLEET_DATABASE_URL": database_url, "FLEET_LEASE_TTL_MS": "2000"})
    office = Office(fleet, database_url)
    queue = {"queueName": "dispatch", "queueUri": "fleet://dispatch"}
    pool = {"code": "P", "concurrency": 4, "secret": SECRET}
    (tmp_path / "router.json").write_text(json.dumps({"queues": [queue], "processingPools": [pool]}))
    with fleet.running("up", "--config", "router.json", "--workers", "1", "--port", "0") as up:
        up.says("Fleet is up")
        ids = [office.add(targetUrl=target.url, poolCode="P", messageGroup="g") for _ in range(3)]
        # The first message has the server make its key, in the folder that it shares with the pipeline.
        assert office.process(address_in(up), ids[0], token="wrong").status_code == 401
        key = (tmp_path / ".fleet" / "app.key").read_bytes()
        messages = [
            {
                "id": id_, "poolCode": "P", "mediationType": "HTTP", "messageGroupId": "g",
                "authToken": hmac.new(key, id_.encode(), hashlib.sha256).hexdigest(),
                "mediationTarget": f"{address_in(up)}/api/dispatch/process?attempt=1",
            }
            for id_ in ids
        ]  # fmt: skip
        lines = "\n".join(map(json.dumps, messages))
        assert fleet.run("send", "dispatch", "--file", "-", input_text=lines).code == 0
        until(lambda: fleet.run("jobs", "stats", "--json").document["COMPLETED"] == 3, why=up.text)
        assert up.stop() == 0
    assert [got.headers["fleet-job"] for got in target.received] == ids
    for got in target.received:
        name, at = got.headers["webhook-id"], got.headers["webhook-timestamp"]
        good = hmac.new(KEY, f"{name}.{at}.".encode() + got.body, hashlib.sha256).digest()
        assert got.headers["webhook-signature"] == f"v1,{base64.b64encode(good).decode()}"
        assert abs(time.time() - int(at)) < 60
