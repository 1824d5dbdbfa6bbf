"""What commands that only look show while Redis refuses writes: all that can be read, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet.config.router import canonical, parse_router_config
from fleet.operate.status import Status, status
from fleet.server.health import judge
from fleet.state.connect import connected
from fleet.state.registry import Registry
from tests.servers.local import RedisServer
from tests.servers.refusing import REFUSALS

ROLES = ("coordinator", "syncer", "worker")
READING = (
    ["ps"], ["pools"], ["queues"], ["workers"], ["leader"], ["inflight"], ["breakers"], ["warnings"], ["dead", "list"],
    ["config", "show"],
)  # fmt: skip
CODES = ["NOREPLICAS", "MISCONF", "READONLY"]
Run = Callable[..., tuple[int, str, str]]


async def settle_in(url: str, directory: Path, *, ttl_ms: int) -> None:
    """A fleet of which somebody has died, and the others have not been able to say that they live for some time."""
    document = {"queues": [{"queueName": "q", "queueUri": f"sqlite:///{directory}/q.db?queue=q"}]}
    async with connected(url) as client:
        registry = Registry(client)
        await registry.publish_config(canonical(parse_router_config(json.dumps(document).encode())))
        long_ago = Registry(client, now_ms=str(await registry.clock_ms() - ttl_ms - 30_000))
        await long_ago.beat("dead", record("worker", "dead"), ttl_ms=ttl_ms)
        for role in ROLES:
            await registry.beat(role, record(role, role), ttl_ms=ttl_ms)


def record(role: str, name: str) -> dict[str, Any]:
    return {"role": role, "name": name, "pid": 1, "host": "h", "startedAt": "2026-01-01T00:00:00Z"}


async def status_now(url: str) -> Status:
    async with connected(url) as client:
        return await status(client)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("ttl_ms", [60_000, 1], ids=["just now", "for long"])
def test_what_can_be_read_is_shown_with_a_line_on_what_redis_refuses(
    fleet: Run, redis_server: RedisServer, tmp_path: Path, code: str, ttl_ms: int
) -> None:
    asyncio.run(settle_in(redis_server.url, tmp_path, ttl_ms=ttl_ms))
    with REFUSALS[code](redis_server):
        exit_code, out, err = fleet("ps", "--json")
        assert (exit_code, sorted(row["name"] for row in json.loads(out))) == (0, list(ROLES)), err
        for command in READING:
            exit_code, out, err = fleet(*command)
            assert (exit_code, bool(out)) == (0, True), (command, err)
            assert err.startswith(f"! Redis refuses writes ({code} "), command
        exit_code, out, err = fleet("status")
        assert (exit_code, err) == (0, "")
        assert out.startswith("Processes  1 coordinator, 1 syncer, 1 worker (when Redis took the last write)\n")
        assert f"! Redis refuses writes ({code} " in out
        assert json.loads(fleet("status", "--json")[1])["redisRefuses"].startswith(code)
        now = asyncio.run(status_now(redis_server.url))
        # What follows from it is not told as well.
        assert len(now.problems) == 1
        redis = judge(now, [], 0).to_json()["parts"]["redis"]
        assert redis == {"status": "DEGRADED", "detail": f"refuses writes: {code}"}


def test_of_a_redis_that_takes_them_nothing_is_said(fleet: Run, redis_server: RedisServer, tmp_path: Path) -> None:
    asyncio.run(settle_in(redis_server.url, tmp_path, ttl_ms=60_000))
    assert [fleet(*command)[2] for command in READING if command != ["config", "show"]] == [""] * (len(READING) - 1)
    assert json.loads(fleet("status", "--json")[1])["redisRefuses"] is None


def test_who_may_only_read_sees_the_fleet_as_it_is(
    fleet: Run, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only the onlooker may not do is not told as trouble of the fleet's."""
    asyncio.run(settle_in(redis_server.url, tmp_path, ttl_ms=60_000))
    with redis_server.client() as admin:
        rights = ["~*", "&*", "+@read", "+@connection", "+info", "+time", "+evalsha", "+eval", "-@write"]
        admin.execute_command("ACL", "SETUSER", "onlooker", "on", "nopass", *rights)
        monkeypatch.setenv("FLEET_REDIS_URL", redis_server.url.replace("redis://", "redis://onlooker:x@"))
        try:
            exit_code, out, err = fleet("ps", "--json")
        finally:
            admin.execute_command("ACL", "DELUSER", "onlooker")
    assert (exit_code, err, len(json.loads(out or "[]"))) == (0, "", 3)
