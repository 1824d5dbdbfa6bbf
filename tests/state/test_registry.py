from __future__ import annotations

import pytest

from fleet.errors import Fenced
from fleet.state.keys import FleetKeys
from fleet.state.known_pools import UNSIGNED, KnownPools, mark_of
from fleet.state.registry import ConfigRevision
from tests.state.stage import Stage

TTL_MS = 3000


async def test_who_beats_lives_until_its_time_is_over(stage: Stage) -> None:
    registry = stage.registry()
    assert await registry.beat("a", {"role": "worker"}, ttl_ms=TTL_MS) == {"a"}
    stage.advance(1000)
    assert await registry.beat("b", {"role": "worker"}, ttl_ms=TTL_MS) == {"a", "b"}
    stage.advance(2000)
    assert await registry.alive() == {"b"}


async def test_beating_again_prolongs_a_life_and_replaces_the_record(stage: Stage) -> None:
    registry = stage.registry()
    await registry.beat("a", {"active": 1}, ttl_ms=TTL_MS)
    stage.advance(TTL_MS - 1)
    await registry.beat("a", {"active": 2}, ttl_ms=TTL_MS)
    stage.advance(TTL_MS - 1)
    assert await registry.processes() == [{"active": 2}]


async def test_who_leaves_is_gone_at_once_and_leaves_nothing(stage: Stage) -> None:
    registry = stage.registry()
    await registry.beat("a", {}, ttl_ms=TTL_MS)
    await registry.beat("b", {"name": "b"}, ttl_ms=TTL_MS)
    await registry.leave("a")
    assert await registry.alive() == {"b"}
    assert await registry.processes() == [{"name": "b"}]
    await registry.leave("b")
    assert await stage.keys() == set()


async def test_asking_who_lives_makes_nobody_live(stage: Stage) -> None:
    registry = stage.registry()
    assert await registry.alive() == set()
    assert await stage.keys() == set()


async def test_the_dead_are_not_listed_and_forgotten_a_minute_later(stage: Stage) -> None:
    registry = stage.registry()
    await registry.beat("dead", {"name": "dead"}, ttl_ms=TTL_MS)
    stage.advance(TTL_MS)
    assert await registry.processes() == []
    stage.advance(60_000)
    await registry.beat("b", {"name": "b"}, ttl_ms=TTL_MS)
    assert await registry.processes() == [{"name": "b"}]
    await registry.leave("b")
    assert await stage.keys() == set()


async def test_a_configuration_is_published_once(stage: Stage) -> None:
    registry = stage.registry()
    assert await registry.config() is None
    assert await registry.revision() == ""
    revision, fresh = await registry.publish_config(b'{"a":1}')
    assert fresh
    published_ms = stage.now_ms
    assert await registry.config() == ConfigRevision(revision, b'{"a":1}', published_ms)
    stage.advance(5000)
    assert await registry.publish_config(b'{"a":1}') == (revision, False)
    assert await registry.config() == ConfigRevision(revision, b'{"a":1}', published_ms + 5000)
    assert await registry.revision() == revision


async def test_every_change_is_a_higher_revision_whatever_the_clock_does(stage: Stage) -> None:
    registry = stage.registry()
    revisions = []
    for body in (b"1", b"2", b"1", b"3"):
        revision, fresh = await registry.publish_config(body)
        assert fresh
        revisions.append(int(revision))
        stage.advance(-1)
    assert revisions == sorted(set(revisions))


async def test_revisions_rise_after_redis_was_wiped(stage: Stage) -> None:
    registry = stage.registry()
    before, _ = await registry.publish_config(b"1")
    await stage.client.flushall()
    stage.advance(1)
    after, fresh = await registry.publish_config(b"1")
    assert fresh
    assert int(after) > int(before)


async def test_pools_are_remembered_until_they_are_forgotten(stage: Stage) -> None:
    registry = stage.registry()
    await registry.add_pools(set())
    await registry.add_pools({"a", "b"})
    await registry.add_pools({"b", "c"})
    await registry.forget_pool("a")
    assert await registry.pools() == {"b", "c"}


async def test_who_follows_the_pools_reads_them_only_when_one_came_or_went_or_has_another_secret(stage: Stage) -> None:
    registry, known = stage.registry(), KnownPools(stage.registry())
    await registry.publish_config(b"{}")
    await registry.add_pools({"a": UNSIGNED, "b": mark_of("secret", "")})
    assert await known.look()
    assert not await known.look()
    await registry.add_pools({"a": UNSIGNED})
    assert not await known.look(), "nothing is new"
    before = dict(known.marks)
    await registry.add_pools({"b": mark_of("another", "")})
    assert await known.look()
    assert known.marks["a"] == before["a"] == UNSIGNED
    assert known.marks["b"] != before["b"]
    await registry.forget_pool("a")
    assert await known.look()
    assert known.marks.keys() == {"b"}
    assert await stage.client.hkeys(FleetKeys.pool_marks) == ["b"]


async def test_after_a_wipe_the_pools_are_read_again_though_as_many_came(stage: Stage) -> None:
    registry, known = stage.registry(), KnownPools(stage.registry())
    await registry.add_pools({"a": UNSIGNED})
    assert await known.look()
    await stage.client.flushall()
    stage.advance(1)
    await registry.add_pools({"z": UNSIGNED})
    assert await known.look()
    assert known.marks == {"z": UNSIGNED}


async def test_any_number_of_pools_is_known(stage: Stage) -> None:
    registry, known = stage.registry(), KnownPools(stage.registry())
    codes = {f"P{number}": UNSIGNED for number in range(2500)}
    await registry.add_pools(codes)
    assert await known.look()
    assert known.marks == codes


async def test_redis_without_a_limit_is_not_full(stage: Stage) -> None:
    if stage.url:  # fakeredis knows nothing of memory
        assert await stage.registry().memory_share() == 0.0


async def test_a_configuration_is_published_by_who_leads_the_syncers_alone(stage: Stage) -> None:
    registry = stage.registry()
    with pytest.raises(Fenced):
        await registry.publish_config(b"1", epoch="7")
    await stage.client.hset(FleetKeys.syncer, "epoch", "8")
    with pytest.raises(Fenced):
        await registry.publish_config(b"1", epoch="7")
    assert await registry.config() is None
    assert (await registry.publish_config(b"1", epoch="8"))[1]
