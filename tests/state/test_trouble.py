"""A server that forgot the scripts, refuses us, or is away."""

from __future__ import annotations

import pytest

from fleet.errors import StateUnavailable
from fleet.state.connect import connect, connected
from fleet.state.pool import Pool
from fleet.state.url import safe_url
from tests.servers.local import RedisServer, running_redis, running_redis_cluster
from tests.servers.ports import free_port
from tests.state.every_call import every_call
from tests.state.stage import TTL_MS, Stage

SECRET = "open-sesame"


async def test_every_call_works_on_a_server_that_has_forgotten_the_scripts(stage: Stage) -> None:
    async for _ in every_call(stage):
        await stage.client.script_flush()


async def test_calls_of_many_pools_and_queues_stay_on_their_nodes(stage: Stage) -> None:
    # On a Cluster a script that touches a key of another node fails by itself.
    for i in range(12):
        async for _ in every_call(stage, code=f"P{i}", name=f"q{i}"):
            pass


def with_user(url: str, user: str) -> str:
    return url.replace("redis://", f"redis://{user}@")


@pytest.mark.parametrize("user", ["", f":not-{SECRET}", f"default:not-{SECRET}", f"nobody:{SECRET}"])
async def test_a_wrong_password_is_one_line_without_it(redis_server: RedisServer, user: str) -> None:
    with redis_server.client() as admin:
        admin.config_set("requirepass", SECRET)
        try:
            with pytest.raises(StateUnavailable) as refused:
                await connect(with_user(redis_server.url, user) if user else redis_server.url)
            async with connected(with_user(redis_server.url, f":{SECRET}")) as client:
                assert await client.ping()
        finally:
            admin.config_set("requirepass", "")
    said = str(refused.value)
    assert f"127.0.0.1:{redis_server.port}" in said
    assert ("refuses us" if user else "a password is wanted") in said
    assert "HELLO" not in said
    assert SECRET not in said
    assert "\n" not in said


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@127.0.0.1:1/0",
        f"redis://me:{SECRET}@127.0.0.1:1/0",
        f"redis://127.0.0.1:1/0?password={SECRET}",
        f"unix://:{SECRET}@/tmp/redis.sock",
        f"unix:///tmp/redis.sock?db=0&password={SECRET}",
    ],
)
def test_a_url_is_shown_without_its_password(url: str) -> None:
    assert SECRET not in safe_url(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "redis://127.0.0.1:port/", "redis://127.0.0.1/?no_such=option"])
async def test_what_is_no_redis_url_is_said_so(url: str) -> None:
    with pytest.raises(StateUnavailable, match="not a Redis URL"):
        await connect(url)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(StateUnavailable, match=r"cannot be reached"):
        await connect(f"redis://127.0.0.1:{free_port()}/0")


async def test_a_server_that_went_away_is_unavailable_and_usable_when_it_is_back() -> None:
    with running_redis() as first:
        client = await connect(first.url)
        pool = Pool(client, "P")
        assert (await pool.exchange("w", ttl_ms=TTL_MS)).tag == "unknown"
        first.server.kill()
        for _ in range(2):
            with pytest.raises(StateUnavailable):
                await pool.exchange("w", ttl_ms=TTL_MS)
        with running_redis(port=first.port):
            assert (await pool.exchange("w", ttl_ms=TTL_MS)).tag == "unknown"
            await client.aclose()


async def test_a_cluster_that_went_away_is_unavailable() -> None:
    with running_redis_cluster() as cluster:
        url = cluster.url.partition("?")[0]
        client = await connect(url)
        pool = Pool(client, "P")
        assert (await pool.exchange("w", ttl_ms=TTL_MS)).tag == "unknown"
        for node in cluster.nodes:
            node.server.kill()
        for _ in range(3):
            with pytest.raises(StateUnavailable):
                await pool.exchange("w", ttl_ms=TTL_MS)
        with pytest.raises(StateUnavailable):
            await connect(url)
        await client.aclose()
