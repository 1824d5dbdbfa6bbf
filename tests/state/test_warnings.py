from __future__ import annotations

import pytest
from redis.asyncio.cluster import RedisCluster

from fleet.state import warnings as module
from fleet.state.keys import FleetKeys
from fleet.state.warnings import KEEP_MS, MAX_TEXT, Warnings
from tests.state.stage import Stage


@pytest.fixture
def store(stage: Stage) -> Warnings:
    return at(stage)


def at(stage: Stage) -> Warnings:
    """The warnings as of the stage's time."""
    return Warnings(stage.client, now_ms=str(stage.now_ms))


async def messages(store: Warnings, *, unacknowledged: bool = False) -> list[str]:
    return [warning.message for warning in await store.list(unacknowledged=unacknowledged)]


async def test_a_warning_is_listed_as_it_was_raised(stage: Stage, store: Warnings) -> None:
    id_ = await store.add("QUEUE_FULL", "WARN", "pool P is full", "coordinator")
    (warning,) = await store.list()
    assert warning.to_json() == {
        "id": id_,
        "category": "QUEUE_FULL",
        "severity": "WARN",
        "message": "pool P is full",
        "timestamp": "2023-11-14T22:13:20.000Z",
        "source": "coordinator",
        "acknowledged": False,
        "count": 1,
        "firstTimestamp": "2023-11-14T22:13:20.000Z",
    }


async def test_the_newest_is_listed_first(stage: Stage) -> None:
    for text in ("one", "two"):
        await at(stage).add("C", "INFO", text, "s")
        stage.advance(1)
    # Two of one millisecond, too.
    for text in ("three", "four"):
        await at(stage).add("C", "INFO", text, "s")
    assert await messages(at(stage)) == ["four", "three", "two", "one"]
    assert len(await at(stage).list(limit=2)) == 2


async def test_the_same_is_counted_and_not_repeated_and_comes_to_the_front(stage: Stage) -> None:
    first = await at(stage).add("C", "ERROR", "again", "s")
    await at(stage).add("C", "ERROR", "other", "s")
    stage.advance(5)
    assert await at(stage).add("C", "ERROR", "again", "s", times=3) == first
    again, _ = await at(stage).list()
    assert (again.id, again.count, again.last_ms - again.first_ms) == (first, 4, 5)


@pytest.mark.parametrize("other", [("D", "m", "s"), ("C", "n", "s"), ("C", "m", "t")])
async def test_another_category_message_or_source_is_another_warning(
    store: Warnings, other: tuple[str, str, str]
) -> None:
    category, message, source = other
    first = await store.add("C", "WARN", "m", "s")
    assert await store.add(category, "WARN", message, source) != first
    assert len(await store.list()) == 2


async def test_an_acknowledged_one_is_no_longer_counted_on(stage: Stage, store: Warnings) -> None:
    first = await store.add("C", "WARN", "m", "s")
    assert await store.acknowledge(first)
    second = await store.add("C", "WARN", "m", "s")
    assert second != first
    assert [(w.id, w.count, w.acknowledged) for w in await store.list(unacknowledged=True)] == [(second, 1, False)]
    assert {w.id: w.acknowledged for w in await store.list()} == {first: True, second: False}


async def test_acknowledging_twice_is_acknowledging_once(store: Warnings) -> None:
    first = await store.add("C", "WARN", "m", "s")
    assert await store.acknowledge(first)
    second = await store.add("C", "WARN", "m", "s")
    assert await store.acknowledge(first)
    # The second is still the one that counts.
    assert await store.add("C", "WARN", "m", "s") == second


async def test_one_that_is_not_there_cannot_be_acknowledged(stage: Stage, store: Warnings) -> None:
    assert not await store.acknowledge("nobody")
    assert not await store.acknowledge("")
    assert await stage.keys() == set()


async def test_all_are_acknowledged_at_once(store: Warnings) -> None:
    for text in ("a", "b", "c"):
        await store.add("C", "WARN", text, "s")
    assert await store.acknowledge_all() == 3
    assert await store.acknowledge_all() == 0
    assert await messages(store, unacknowledged=True) == []
    assert len(await messages(store)) == 3
    assert await store.add("C", "WARN", "a", "s")
    assert await messages(store, unacknowledged=True) == ["a"]


async def test_one_is_gone_eight_hours_after_it_was_raised_last(stage: Stage) -> None:
    await at(stage).add("C", "WARN", "old", "s")
    stage.advance(KEEP_MS // 2)
    await at(stage).add("C", "WARN", "kept", "s")
    stage.advance(KEEP_MS // 2 - 1)
    assert await messages(at(stage)) == ["kept", "old"]
    stage.advance(1)
    assert await messages(at(stage)) == ["kept"]
    # And what is raised anew after that is new.
    await at(stage).add("C", "WARN", "old", "s")
    assert [(w.message, w.count) for w in await at(stage).list()] == [("old", 1), ("kept", 1)]
    assert await stage.client.hlen(FleetKeys.warnings) == 2


async def test_nothing_is_kept_longer_than_the_last_warning(stage: Stage, store: Warnings) -> None:
    await store.add("C", "WARN", "m", "s")
    assert await stage.keys() == {FleetKeys.warnings, FleetKeys.warning_times, FleetKeys.warning_kinds}
    for key in await stage.keys():
        assert 0 < await stage.client.pttl(key) <= KEEP_MS


async def test_no_more_than_the_newest_are_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    for number in range(5):
        await at(stage).add("C", "WARN", str(number), "s")
        stage.advance(1)
    assert await messages(at(stage)) == ["4", "3", "2"]
    assert await stage.client.hlen(FleetKeys.warnings) == await stage.client.hlen(FleetKeys.warning_kinds) == 3


@pytest.mark.parametrize(
    ("given", "kept"),
    [("CRITICAL", "CRITICAL"), ("error", "ERROR"), ("WARNING", "WARN"), ("INFO", "INFO"), ("FATAL", "WARN")],
)
async def test_no_severity_is_dropped_for_its_name(store: Warnings, given: str, kept: str) -> None:
    await store.add("C", given, "m", "s")
    assert [w.severity for w in await store.list()] == [kept]


async def test_a_text_keeps_neither_passwords_nor_line_ends_nor_an_end_of_its_own(store: Warnings) -> None:
    await store.add("C", "WARN", f"cannot fetch https://me:hidden@host/x\n\x1f\x1e{'long ' * 1000}", "s\x1f")
    (warning,) = await store.list()
    assert warning.message.startswith("cannot fetch https://host/x   long")
    assert len(warning.message) == MAX_TEXT
    assert warning.source == "s "


async def test_a_full_redis_can_still_say_so(stage: Stage, store: Warnings) -> None:
    if stage.url and not isinstance(stage.client, RedisCluster):  # fakeredis knows nothing of memory
        await stage.client.config_set("maxmemory", "1mb")
        try:
            await store.add("REDIS_FULL", "CRITICAL", "Redis is full", "coordinator")
            assert await messages(store) == ["Redis is full"]
        finally:
            await stage.client.config_set("maxmemory", "0")
