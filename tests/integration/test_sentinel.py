"""A master that real sentinels name, with passwords: found, followed when it is demoted, killed or frozen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from fleet.config.settings import RedisSettings, Settings
from fleet.errors import StateUnavailable
from fleet.local.doctor import examine
from fleet.state.connect import Client, check_url, connect, connected
from fleet.state.pool import Pool, PoolSettings
from fleet.state.sentinel import parse
from fleet.state.url import safe_url
from fleet.waiting import cancel
from tests.integration.test_moved_redis import hearing
from tests.servers.local import RedisServer
from tests.servers.ports import free_port
from tests.servers.sentinels import MASTER, Watched, running_sentinels
from tests.waiting import until

SECRET, THEIRS = "open-sesame", "watch-man"


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with running_sentinels(tmp_path, password=SECRET, sentinel_password=THEIRS) as found:
        yield found


async def test_the_master_is_found_with_passwords_on_both_sides(watched: Watched) -> None:
    async with connected(watched.url) as client:
        await _write(client)
        with watched.client(watched.servers[0]) as there:
            assert there.exists("{p:P}:settings")
    for wrong in (watched.url.replace(SECRET, "wrong"), watched.url.replace(THEIRS, "wrong")):
        with pytest.raises(StateUnavailable) as refused:
            await connect(wrong)
        assert SECRET not in str(refused.value)
        assert THEIRS not in str(refused.value)


async def test_who_lacks_a_password_and_whose_is_told(watched: Watched) -> None:
    theirs = f"?sentinel_password={THEIRS}"
    for url, words in {
        watched.url.replace(theirs, ""): "the sentinels refuse us: a password is wanted (the option sentinel_password",
        watched.url.replace(THEIRS, "wrong"): "the sentinels refuse us: ",
        watched.url.replace(f":{SECRET}@", ""): " refuses us: a password is wanted",
        watched.url.replace(SECRET, "wrong"): " refuses us: ",
    }.items():
        with pytest.raises(StateUnavailable) as refused:
            await connect(url)
        said = str(refused.value)
        assert words in said
        assert ("sentinel_password" in said) == ("the sentinels" in words)
        assert "no sentinel names" not in said


async def test_a_sentinel_for_a_redis_and_a_redis_for_a_sentinel_are_told(
    watched: Watched, redis_server: RedisServer
) -> None:
    at = f"127.0.0.1:{watched.ports[0]}"
    with pytest.raises(StateUnavailable, match=f"^redis://{at}/0 is a Sentinel, use sentinel://HOST:PORT/MASTER$"):
        await connect(f"redis://:{THEIRS}@{at}/0")
    at = f"127.0.0.1:{redis_server.port}"
    with pytest.raises(StateUnavailable, match=f"{at} is not a Sentinel, use redis://"):
        await connect(f"sentinel://{at}/{MASTER}")


def _demote(watched: Watched) -> None:
    watched.fail_over()


def _kill(watched: Watched) -> None:
    watched.servers[0].server.kill()
    watched.wait_for_another(watched.servers[0])


def _freeze(watched: Watched) -> None:
    watched.servers[0].server.pause()
    watched.wait_for_another(watched.servers[0])


@pytest.mark.parametrize("end", [_demote, _kill, _freeze])
async def test_calls_and_signals_follow_a_master_that_is_replaced(
    watched: Watched, end: Callable[[Watched], None]
) -> None:
    async with connected(watched.url) as client, hearing(client) as heard:
        await heard("a", watched.servers[0])
        await _write(client)
        await asyncio.to_thread(watched.wait_in_sync)
        writing = asyncio.create_task(_write_on(client))
        await asyncio.to_thread(end, watched)
        usable_s = time.monotonic()
        new = watched.master()
        assert new is watched.servers[1]
        with watched.client(new) as there:
            before = _scripts_run(there)
            await asyncio.to_thread(until, lambda: _scripts_run(there) > before + 10, why=lambda: "no call comes to it")
        await heard("b", new)
        assert time.monotonic() - usable_s < 5
        await cancel([writing])
        watched.servers[0].server.resume()


async def test_a_sentinel_that_was_cut_off_is_not_believed(watched: Watched) -> None:
    """It names the old master for ever; the others know of a later failover."""
    watched.sentinels[0].pause()
    with watched.sentinel(1) as client:
        client.execute_command("SENTINEL FAILOVER", MASTER)
    await asyncio.to_thread(watched.wait_for_another, watched.servers[0])
    watched.sentinels[0].resume()
    async with connected(watched.url) as client:
        await _write(client)


async def test_sentinels_that_are_gone_cost_no_more_than_a_moment(watched: Watched) -> None:
    watched.sentinels[0].kill()
    watched.sentinels[1].pause()
    began = time.monotonic()
    async with connected(watched.url) as client:
        await _write(client)
    assert time.monotonic() - began < 3
    watched.sentinels[1].resume()


async def test_the_doctor_says_what_it_found(watched: Watched, tmp_path: Path) -> None:
    said = await _examined(watched.url, tmp_path)
    at = f"127.0.0.1:{watched.servers[0].port}"
    assert said["sentinel"] == ("ok", f"3 of 3 answer, quorum 2; master {MASTER} is {at}, 1 replica")
    assert said["redis"][0] == "ok"
    watched.servers[1].server.kill()
    with watched.sentinel() as asked:
        until(lambda: asked.sentinel_slaves(MASTER)[0]["is_sdown"], why=lambda: "the replica is not missed")
    said = await _examined(watched.url, tmp_path)
    text = f"3 of 3 answer, quorum 2; master {MASTER} is {at}, 0 of 1 replica alive"
    assert said["sentinel"] == ("warn", f"{text}; no replica is alive: no failover is possible")
    watched.sentinels[2].kill()
    level, text = (await _examined(watched.url, tmp_path))["sentinel"]
    assert (level, text.split(";")[0]) == ("warn", "2 of 3 answer, quorum 2")
    assert f"127.0.0.1:{watched.ports[2]}" in text
    level, text = (await _examined(watched.url.replace(f"/{MASTER}/", "/nobody/"), tmp_path))["sentinel"]
    assert level == "fail"
    assert "nobody" in text


async def _examined(url: str, directory: Path) -> dict[str, tuple[str, str]]:
    settings = Settings(redis=RedisSettings(url=url), data_dir=directory)
    found = [finding async for finding in examine(settings, _nothing)]
    assert not any(SECRET in finding.text or THEIRS in finding.text for finding in found)
    return {finding.subject: (finding.level, finding.text) for finding in found}


async def _nothing(_source: str) -> bytes:
    return b""


def test_a_url_names_hosts_passwords_master_and_database() -> None:
    found = parse("sentinel://me:p%40ss@one,two:1,[::1]:2/our%20master/3?sentinel_password=x&socket_timeout=2")
    assert found.sentinels == (("one", 26379), ("two", 1), ("::1", 2))
    assert found.master == "our master"
    assert found.of_master == {"username": "me", "password": "p@ss", "db": 3, "socket_timeout": 2.0}
    assert found.of_sentinels == {"password": "x", "socket_timeout": 2.0}
    assert "connection_class" in parse("sentinels://one/m").of_master
    assert "connection_class" in parse("sentinels://one/m").of_sentinels


@pytest.mark.parametrize(
    "url",
    ["sentinel://", "sentinel://one", "sentinel:///m", "sentinel://one/m/x", "sentinel://one,/m", "sentinel://one:x/m"],
)
def test_what_names_no_sentinel_or_no_master_is_refused(url: str) -> None:
    with pytest.raises(StateUnavailable, match="not a Redis URL"):
        check_url(url)


def test_a_url_is_shown_without_either_password() -> None:
    shown = safe_url(f"sentinel://me:{SECRET}@one:1,two:2/m/0?sentinel_password={THEIRS}")
    assert shown == "sentinel://one:1,two:2/m/0"


async def test_no_sentinel_at_all_is_an_outage_with_its_reason() -> None:
    with pytest.raises(StateUnavailable, match="no sentinel names the master m"):
        await connect(f"sentinel://127.0.0.1:{free_port()}/m")


def _scripts_run(client: redis.Redis) -> int:
    return int(client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])


async def _write(client: Client) -> None:
    await Pool(client, "P").configure("1", PoolSettings(concurrency=1, capacity=50))


async def _write_on(client: Client) -> None:
    while True:
        try:
            await _write(client)
        except StateUnavailable:
            await asyncio.sleep(0.02)
