"""The door as a process: its page's first steps, whose requests it takes, and a Redis that is away."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.sqs.shop import Shop, refused
from tests.servers.local import RedisServer, running_redis
from tests.servers.sqs_door import Protocol, SqsDoor, client_of, running_sqs_door

PAGE = Path(__file__).parents[3] / "docs" / "sqs.md"
both = pytest.mark.parametrize("protocol", ["json", "query"])


def test_the_script_of_the_page_runs_as_it_is_printed(door: SqsDoor) -> None:
    """Where a port is another one, and nothing else."""
    block = re.search(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert block is not None
    script = block[1].replace("9324", str(door.port))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"sent [0-9a-f-]{36}\nreceived Order #1 Ada\n", done.stdout)


@both
def test_with_keys_only_those_who_sign_with_one_are_answered(sqs_redis: RedisServer, protocol: Protocol) -> None:
    with running_sqs_door(sqs_redis.url, FLEET_SQS_ACCESS_KEYS="AKFLEET:very secret,AKOTHER:too") as one:
        for key, secret in (("AKFLEET", "very secret"), ("AKOTHER", "too")):
            assert "QueueUrl" in client_of(one.url, protocol, key=key, secret=secret).create_queue(QueueName="signed")
        with refused("SignatureDoesNotMatch", status=403):
            client_of(one.url, protocol, key="AKFLEET", secret="guessed").list_queues()
        with refused("InvalidClientTokenId", status=403):
            client_of(one.url, protocol, key="AKNOBODY", secret="too").list_queues()


def test_an_address_that_is_not_loopback_needs_keys(sqs_redis: RedisServer) -> None:
    run = "from fleet.broker.sqs.main import run; from fleet.config.settings import load; run(load())"
    environment = {"FLEET_REDIS_URL": sqs_redis.url, "FLEET_SQS_HOST": "0.0.0.0", "FLEET_SQS_PORT": "0"}
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, timeout=30, env=environment)
    assert done.returncode != 0
    assert "listening on 0.0.0.0 needs access keys" in done.stderr


@both
def test_without_keys_a_request_has_to_name_this_machine(sqs_redis: RedisServer, protocol: Protocol) -> None:
    with running_sqs_door(sqs_redis.url) as one:
        client = client_of(one.url, protocol)
        client.meta.events.register("before-send.sqs", lambda request, **_: request.headers.update(Host="evil.example"))
        with refused("AccessDenied", status=403):
            client.list_queues()


@both
def test_a_door_without_its_redis_is_unavailable_and_goes_on_when_it_is_back(protocol: Protocol) -> None:
    with running_redis() as server, running_sqs_door(server.url) as one:
        shop = Shop(client_of(one.url, protocol), one.url, protocol)
        url = shop.queue()
        with server.client() as client:
            client.config_set("maxmemory", "1")
            with refused("ServiceUnavailable", status=503):
                shop.send(url, "x")
            client.config_set("maxmemory", "0")
        shop.send(url, "y")
        assert shop.bodies(url) == ["y"]
        server.server.kill()
        with refused("ServiceUnavailable", status=503):
            shop.send(url, "z")
