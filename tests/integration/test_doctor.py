"""`fleet doctor` and its like before a Redis that answers and takes no writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.config.settings import RedisSettings, Settings
from fleet.errors import StateUnavailable
from fleet.local.doctor import examine
from fleet.state.connect import connected
from fleet.state.registry import Registry
from fleet.state.writes import refusal
from tests.servers.local import RedisCluster, RedisServer
from tests.servers.refusing import REFUSALS


async def examined(url: str, directory: Path) -> dict[str, tuple[str, str]]:
    async def fetch(_: str) -> bytes:
        return b""

    settings = Settings(redis=RedisSettings(url=url), data_dir=directory)
    return {found.subject: (found.level, found.text) async for found in examine(settings, fetch)}


@pytest.mark.parametrize(
    ("code", "look"), [("NOREPLICAS", "replicas"), ("MISCONF", "disk"), ("READONLY", "who the master is")]
)
async def test_a_redis_that_refuses_writes_fails_with_its_words(
    redis_server: RedisServer, tmp_path: Path, code: str, look: str
) -> None:
    with REFUSALS[code](redis_server):
        level, text = (await examined(redis_server.url, tmp_path))["redis"]
    assert level == "fail"
    assert f"at {redis_server.url} refuses writes: {code} " in text
    assert look in text.partition("; look at ")[2]


async def test_one_that_takes_them_is_left_as_it_was(redis_server: RedisServer, tmp_path: Path) -> None:
    assert (await examined(redis_server.url, tmp_path))["redis"][0] == "ok"
    with redis_server.client() as admin:
        assert admin.dbsize() == 0


async def test_every_node_of_a_cluster_is_asked(redis_cluster: RedisCluster) -> None:
    async with connected(redis_cluster.url) as client:
        assert await refusal(client) == ""
        for node in redis_cluster.nodes:
            with REFUSALS["NOREPLICAS"](node):
                assert (await refusal(client)).startswith("NOREPLICAS ")


async def test_an_error_after_connecting_names_the_server_without_its_password(redis_server: RedisServer) -> None:
    url = redis_server.url.replace("redis://", "redis://default:open-sesame@")
    with pytest.raises(StateUnavailable) as refused:
        async with connected(url) as client:
            with REFUSALS["NOREPLICAS"](redis_server):
                await Registry(client).forget_queue("q")
    assert str(refused.value).startswith(f"Redis at {redis_server.url} is not ready: NOREPLICAS ")
