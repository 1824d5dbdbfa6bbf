"""Where `fleet server` and the syncer listen, whom they let in, and how they live and end."""

from __future__ import annotations

import json
import socket
import time
from contextlib import closing
from pathlib import Path

import requests

from tests.acceptance.fleet_command import Fleet
from tests.acceptance.site import Site, address_in
from tests.servers.local import running_redis
from tests.waiting import until


def test_another_address_than_loopback_needs_a_token(site: Site) -> None:
    refused = site.fleet.run("server", "--host", "0.0.0.0", "--port", "0")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "FLEET_SERVER_TOKEN" in refused.err
    tokens = {"FLEET_SERVER_TOKEN": "for operators", "FLEET_SERVER_VIEWER_TOKEN": "for viewers"}
    with site.fleet.running("server", "--host", "0.0.0.0", "--port", "0", **tokens) as server:
        server.says("answers at")
        own = Site(site.fleet, server, address_in(server).replace("0.0.0.0", "127.0.0.1"), "")
        for token, read, write in ((None, 401, 401), ("for viewers", 200, 403), ("for operators", 200, 202)):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            assert own.ask("GET", "/metrics", **headers).status_code == read
            assert own.ask("POST", "/config/reload", **headers).status_code == write
            assert own.ask("GET", "/health/ready").status_code == 200
        assert server.stop() == 0
        assert "for operators" not in server.text()


def test_a_port_in_use_is_one_clear_line(site: Site, tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        for fleet, command in ((site.fleet, "server"), (Fleet(tmp_path), "up")):
            refused = fleet.run(command, "--port", port)
            assert refused.code == 1
            assert refused.err == f"fleet: cannot listen on 127.0.0.1 port {port}: Address already in use\n"


def test_a_server_that_is_listened_to_stops_cleanly_and_soon(site: Site) -> None:
    with site.fleet.running("server", "--port", "0") as server:
        server.says("answers at")
        with requests.get(address_in(server) + "/events", stream=True, timeout=15) as stream:
            next(stream.iter_lines())
            started = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - started < 5
        assert "has stopped" in server.text()
        assert "Traceback" not in server.text()
    assert len([p for p in site.fleet.run("ps", "--json").document if p["role"] == "server"]) == 1


def test_without_redis_it_lives_is_not_ready_and_comes_back_by_itself(tmp_path: Path) -> None:
    password = "only-for-this-test"
    with running_redis() as redis:
        with redis.client() as client:
            client.config_set("requirepass", password)
        fleet = Fleet(tmp_path, {"FLEET_REDIS_URL": f"redis://:{password}@127.0.0.1:{redis.port}/0"})
        with fleet.running("server", "--port", "0") as server:
            server.says("answers at")
            own = Site(fleet, server, address_in(server), "")
            assert own.get("/health")["status"] == "DEGRADED"  # there is nobody but us
            redis.server.pause()
            try:
                until(lambda: own.ask("GET", "/health/ready").status_code == 503)
                assert own.ask("GET", "/health/live").status_code == 200
            finally:
                redis.server.resume()
            until(lambda: own.ask("GET", "/health/ready").status_code == 200)
            redis.server.kill()
            until(lambda: own.ask("GET", "/health/ready").status_code == 503)
            assert own.get("/health") == {
                "status": "DEGRADED",
                "parts": {"redis": {"status": "DEGRADED", "detail": "cannot be reached"}},
            }
            assert "cannot be reached" in own.get("/warnings", 503)["error"]
            with running_redis(port=redis.port) as again:
                with again.client() as client:
                    client.config_set("requirepass", password)
                until(lambda: own.ask("GET", "/health/ready").status_code == 200)
                assert own.get("/warnings") == []
                assert server.stop() == 0
            assert password not in server.text()
            assert "Traceback" not in server.text()


def test_a_syncer_that_can_be_asked_configures_a_thousand_pools(tmp_path: Path) -> None:
    with running_redis() as redis:
        fleet = Fleet(tmp_path, {"FLEET_REDIS_URL": redis.url})
        (tmp_path / "router.json").write_text(json.dumps({"processingPools": [{"code": f"P{i}"} for i in range(1000)]}))
        with fleet.running("syncer", "--config", "router.json") as syncer:
            syncer.says("1,001 pools")
            assert len(fleet.run("pools", "--json").document) == 1001
            assert "Too many connections" not in syncer.text()
            assert syncer.stop() == 0
