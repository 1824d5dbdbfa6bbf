from __future__ import annotations

import os

import pytest
import redis
import requests
from redis.cluster import RedisCluster as ClusterClient

from tests.servers.local import RedisCluster, RedisServer, ServerFailed, Sink, running_redis


def test_the_redis_of_the_tests_is_real_and_never_evicts(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        assert client.dbsize() == 0
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        client.set("left", "behind")


def test_each_test_finds_redis_empty(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        assert client.get("left") is None


def test_the_cluster_spreads_its_slots_over_three_masters(redis_cluster: RedisCluster) -> None:
    with ClusterClient.from_url(redis_cluster.url.partition("?")[0]) as client:
        for number in range(100):
            client.set(f"{{p:{number}}}", "x")
        assert client.get("{p:7}") == b"x"
    sizes = []
    for node in redis_cluster.nodes:
        with node.client() as client_of_one:
            sizes.append(client_of_one.dbsize())
    assert sum(sizes) == 100
    assert min(sizes) > 0


def test_the_sink_acks_as_json(sink: Sink) -> None:
    answer = requests.post(f"{sink.url}any/where", json={"messageId": "1"}, timeout=5)
    assert answer.status_code == 200
    assert answer.json() == {"ack": True}
    assert answer.headers["content-type"] == "application/json"


def test_a_server_is_gone_after_a_failed_test() -> None:
    with pytest.raises(RuntimeError, match="the test failed"), running_redis() as server:
        pid = server.server.pid
        raise RuntimeError("the test failed")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_that_cannot_start_is_an_error_with_its_log() -> None:
    with pytest.raises(ServerFailed, match="no-such-option"), running_redis("--no-such-option", "1"):
        pass


def test_a_killed_redis_can_come_back_on_its_port() -> None:
    with running_redis() as first:
        first.server.kill()
        with pytest.raises(redis.ConnectionError), first.client() as client:
            client.ping()
        with running_redis(port=first.port) as second, second.client() as client:
            assert client.ping()
