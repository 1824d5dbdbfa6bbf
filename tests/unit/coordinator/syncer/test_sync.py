"""The syncer, with sources, Redis and time as a test wants them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator.syncer.fetch import fetch
from coordinator.syncer.sync import Published, RetryPolicy, Sync, limit_pools
from fleet.config.router import RouterConfig, parse_router_config
from fleet.errors import InvalidConfig, StateUnavailable
from tests.clocks import HandClock


def pools(**concurrencies: int) -> bytes:
    return json.dumps({"processingPools": [{"code": c, "concurrency": n} for c, n in concurrencies.items()]}).encode()


def codes(config: RouterConfig) -> dict[str, int]:
    return {pool.code: pool.concurrency for pool in config.pools if not pool.implied}


# limit_pools


def test_pools_above_the_limit_are_left_out_but_never_the_default_pool() -> None:
    config = parse_router_config(pools(A=1, B=2, C=3))
    limited, dropped = limit_pools(config, max_pools=2)
    assert {pool.code for pool in limited.pools} == {"DEFAULT-POOL", "A"}
    assert dropped == ("B", "C")
    assert limit_pools(config, max_pools=4) == (config, ())


# Sync


class World:
    """Sources, Redis and time as a test wants them."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes | Exception] = {}
        self.fetched: list[str] = []
        self.published: list[dict[str, int]] = []
        self.warnings: list[tuple[str, str, str]] = []
        self.slept: list[float] = []
        self.clock = HandClock()
        self.redis_away = self.stands_by = self.took_over = False

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.now_ms += round(seconds * 1000)

    def fetch(self, source: str) -> bytes:
        self.fetched.append(source)
        answer = self.answers[source]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def publish(self, config: RouterConfig, *, is_fresh: Callable[[], bool]) -> Published:
        if self.redis_away:
            raise StateUnavailable
        if self.stands_by or (self.took_over and not is_fresh()):
            return Published("0", in_force=False)
        self.published.append(codes(config))
        return Published(str(len(self.published)))

    async def warn(self, category: str, severity: str, text: str) -> None:
        if self.redis_away:
            raise StateUnavailable
        self.warnings.append((category, severity, text))

    def syncer(self, sources: str, **more: Any) -> Sync:
        return Sync(
            sources=sources,
            publish=self.publish,
            warn=self.warn,
            clock=self.clock,
            **{"sleep": self.sleep, "fetch": self.fetch, **more},
        )

    async def ticks(self, syncer: Sync, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.now_ms += 1000
            await syncer.tick()


@pytest.fixture
def world() -> World:
    return World()


AWAY = InvalidConfig("away")


async def test_the_first_sync_is_tried_twelve_times_five_seconds_apart(world: World) -> None:
    world.answers["http://a"] = AWAY
    with pytest.raises(InvalidConfig, match="away"):
        await world.syncer("http://a").initial()
    assert len(world.fetched) == 12
    assert world.slept == [5.0] * 11
    assert [(category, severity) for category, severity, _ in world.warnings] == [("CONFIG_SYNC_FAILED", "CRITICAL")]


async def test_the_first_sync_comes_at_once(world: World) -> None:
    world.answers["http://a"] = pools(A=1)
    await world.syncer("http://a").initial()
    assert (world.published, world.slept) == ([{"A": 1}], [])


async def test_the_first_sync_goes_on_when_an_attempt_works(world: World) -> None:
    world.answers["http://a"] = AWAY

    async def sleep(seconds: float) -> None:
        world.answers["http://a"] = pools(A=1)

    syncer = world.syncer("http://a", sleep=sleep)
    await syncer.initial()
    assert syncer.revision == "1"
    assert world.published == [{"A": 1}]
    assert world.warnings == []


async def test_redis_away_at_the_first_sync_fails_it_for_good_in_the_end(world: World) -> None:
    world.answers["http://a"] = pools(A=1)
    world.redis_away = True
    with pytest.raises(StateUnavailable):
        await world.syncer("http://a", retry=RetryPolicy(attempts=3)).initial()
    assert len(world.fetched) == 3


async def test_an_invalid_configuration_publishes_nothing_and_names_its_source(world: World) -> None:
    world.answers["http://me:s3cret@a"] = pools(A=-1)
    with pytest.raises(InvalidConfig, match=r"^http://a: processingPools\[0\].concurrency"):
        await world.syncer("http://me:s3cret@a", retry=RetryPolicy(attempts=1)).initial()
    assert world.published == []


async def test_several_sources_are_merged_and_the_first_wins(world: World) -> None:
    world.answers = {"http://a": pools(A=1), "http://b": pools(A=2, B=2)}
    await world.syncer("http://a, http://b", inline=pools(B=9, C=3)).initial()
    assert world.published == [{"A": 1, "B": 2, "C": 3}]


async def test_the_first_sync_needs_every_source(world: World) -> None:
    world.answers = {"http://a": pools(A=1), "http://b": AWAY}
    with pytest.raises(InvalidConfig):
        await world.syncer("http://a,http://b").initial()
    assert world.published == []


async def test_every_source_that_fails_at_the_first_sync_is_named(world: World) -> None:
    world.answers = {"http://a": InvalidConfig("a is away"), "http://b": pools(B=1), "http://c": pools(C=-1)}
    with pytest.raises(InvalidConfig, match=r"^a is away; http://c: processingPools\[0\].concurrency"):
        await world.syncer("http://a,http://b,http://c", retry=RetryPolicy(attempts=2)).initial()
    (warning,) = world.warnings
    assert "a is away; http://c" in warning[2]
    assert world.published == []


async def test_later_a_source_that_fails_counts_with_its_last_good_configuration(world: World) -> None:
    world.answers = {"http://a": pools(A=1), "http://b": pools(B=2)}
    syncer = world.syncer("http://a,http://b", sync_interval_s=10)
    await syncer.initial()
    world.answers = {"http://a": pools(A=5), "http://b": AWAY}
    await world.ticks(syncer, 11)
    assert world.published[-1] == {"A": 5, "B": 2}


async def test_a_url_that_fails_later_is_tried_twelve_times_before_a_warning(world: World) -> None:
    world.answers["http://a"] = pools(A=1)
    syncer = world.syncer("http://a", sync_interval_s=300)
    await syncer.initial()
    world.answers["http://a"] = AWAY
    await world.ticks(syncer, 300 + 54)
    assert len(world.fetched) == 1 + 11
    assert world.warnings == []
    await world.ticks(syncer, 1)
    assert [(category, severity) for category, severity, _ in world.warnings] == [("CONFIG_SYNC_FAILED", "WARN")]
    await world.ticks(syncer, 299)
    assert len(world.fetched) == 1 + 12
    await world.ticks(syncer, 55)
    assert len(world.fetched) == 1 + 12 + 11
    assert len(world.warnings) == 1
    world.answers["http://a"] = pools(A=2)
    await world.ticks(syncer, 1)
    assert world.published[-1] == {"A": 2}
    assert len(world.warnings) == 1


async def test_urls_are_read_at_the_interval_and_no_sooner(world: World) -> None:
    world.answers["http://a"] = pools(A=1)
    syncer = world.syncer("http://a", sync_interval_s=300)
    await syncer.initial()
    await world.ticks(syncer, 299)
    assert len(world.fetched) == 1
    await world.ticks(syncer, 1)
    assert len(world.fetched) == 2


async def test_a_changed_file_is_read_at_the_next_tick(world: World, tmp_path: Path) -> None:
    file = tmp_path / "router.json"
    file.write_bytes(pools(A=1))
    syncer = world.syncer(str(file), fetch=fetch)
    await syncer.initial()
    draft = tmp_path / "draft"
    draft.write_bytes(pools(A=7))
    os.replace(draft, file)
    await world.ticks(syncer, 1)
    assert world.published[-1] == {"A": 7}


async def test_a_broken_file_is_warned_about_once_and_mended_at_the_next_write(world: World, tmp_path: Path) -> None:
    file = tmp_path / "router.json"
    file.write_bytes(pools(A=1))
    syncer = world.syncer(str(file), fetch=fetch)
    await syncer.initial()
    file.write_bytes(b"{ half of it")
    await world.ticks(syncer, 20)
    assert len(world.warnings) == 1
    assert str(file) in world.warnings[0][2]
    file.unlink()
    await world.ticks(syncer, 20)
    assert len(world.warnings) == 2
    assert world.published[-1] == {"A": 1}
    file.write_bytes(pools(A=9, B=1))
    await world.ticks(syncer, 1)
    assert world.published[-1] == {"A": 9, "B": 1}


async def test_a_wiped_redis_has_its_configuration_back_within_seconds(world: World) -> None:
    world.answers["http://a"] = pools(A=1)
    syncer = world.syncer("http://a")
    await syncer.initial()
    world.published.clear()
    await world.ticks(syncer, 3)
    assert {"A": 1} in world.published
    assert len(world.fetched) == 1


async def test_redis_away_later_ends_nothing_and_is_caught_up_with(world: World) -> None:
    world.answers["http://a"] = pools(A=1)
    syncer = world.syncer("http://a", sync_interval_s=5)
    await syncer.initial()
    world.redis_away = True
    world.answers["http://a"] = pools(A=2)
    await world.ticks(syncer, 10)
    assert world.published == [{"A": 1}]
    world.redis_away = False
    await world.ticks(syncer, 3)
    assert world.published[-1] == {"A": 2}


async def test_a_reload_reads_everything_at_the_next_tick(world: World) -> None:
    world.answers["http://a"] = pools(A=1)
    syncer = world.syncer("http://a")
    await syncer.initial()
    world.answers["http://a"] = pools(A=2)
    syncer.reload()
    await world.ticks(syncer, 1)
    assert world.published[-1] == {"A": 2}


async def test_who_asked_for_a_reload_is_told_what_came_of_it(world: World) -> None:
    told: list[tuple[str, str]] = []

    async def on_reloaded(request: str, error: str) -> None:
        told.append((request, error))

    world.answers = {"http://a": pools(A=1), "http://b": pools(B=1)}
    syncer = world.syncer("http://a,http://b", on_reloaded=on_reloaded)
    await syncer.initial()
    await world.ticks(syncer, 5)
    assert told == []
    syncer.reload("first")
    await world.ticks(syncer, 5)
    world.answers = {"http://a": InvalidConfig("a is away"), "http://b": InvalidConfig("b is wrong")}
    syncer.reload("second")
    await world.ticks(syncer, 20)
    world.answers = {"http://a": pools(A=1), "http://b": pools(B=1)}
    world.redis_away = True
    syncer.reload("third")
    await world.ticks(syncer, 1)
    assert told == [("first", ""), ("second", "a is away; b is wrong"), ("third", "Redis cannot be reached")]


async def test_after_another_led_nothing_is_published_that_was_read_before(world: World) -> None:
    world.answers = {"http://a": pools(A=1), "http://b": pools(B=1)}
    world.stands_by = True
    syncer = world.syncer("http://a,http://b")
    await syncer.initial()
    await world.ticks(syncer, 5)
    assert (world.published, len(world.fetched)) == ([], 2)
    world.stands_by, world.took_over = False, True
    world.answers = {"http://a": pools(A=2), "http://b": AWAY}
    syncer.reread()
    await world.ticks(syncer, 3)
    assert world.published == []
    world.answers["http://b"] = pools(B=2)
    await world.ticks(syncer, 5)
    assert world.published[0] == {"A": 2, "B": 2}


async def test_after_another_led_a_source_that_is_given_up_counts_with_its_last_good_configuration(
    world: World,
) -> None:
    world.answers = {"http://a": pools(A=1), "http://b": pools(B=1)}
    syncer = world.syncer("http://a,http://b")
    await syncer.initial()
    world.published.clear()
    world.took_over = True
    world.answers = {"http://a": pools(A=2), "http://b": AWAY}
    syncer.reread()
    await world.ticks(syncer, 54)
    assert world.published == []
    await world.ticks(syncer, 3)
    assert world.published[0] == {"A": 2, "B": 1}


async def test_what_is_not_in_force_is_no_news(world: World) -> None:
    new: list[dict[str, int]] = []
    world.answers["http://a"] = pools(A=1, B=1, C=1)
    world.stands_by = True
    syncer = world.syncer("http://a", max_pools=2, on_new=lambda config: new.append(codes(config)))
    await syncer.initial()
    assert (new, world.warnings) == ([], [])
    world.stands_by = False
    await world.ticks(syncer, 2)
    assert (new, len(world.warnings)) == ([{"A": 1}], 1)


async def test_too_many_pools_are_warned_about_once(world: World) -> None:
    world.answers["http://a"] = pools(A=1, B=1, C=1)
    syncer = world.syncer("http://a", max_pools=2)
    await syncer.initial()
    await world.ticks(syncer, 5)
    assert world.published[-1] == {"A": 1}
    assert [(category, severity) for category, severity, _ in world.warnings] == [("POOL_LIMIT", "CRITICAL")]
    many = World()
    many.answers["http://a"] = pools(A=1, B=1)
    await many.syncer("http://a", pool_warning_threshold=3).initial()
    assert [(category, severity) for category, severity, _ in many.warnings] == [("POOL_LIMIT", "WARN")]


async def test_each_new_configuration_is_handed_on_once_and_after_it_was_published(world: World) -> None:
    new: list[tuple[dict[str, int], int]] = []
    world.answers["http://a"] = pools(A=1)
    syncer = world.syncer("http://a", on_new=lambda config: new.append((codes(config), len(world.published))))
    await syncer.initial()
    await world.ticks(syncer, 400)
    assert new == [({"A": 1}, 1)]
    world.answers["http://a"] = pools(A=2)
    syncer.reload()
    await world.ticks(syncer, 3)
    assert [config for config, _ in new] == [{"A": 1}, {"A": 2}]


def test_a_syncer_without_any_source_says_how_to_give_one(world: World) -> None:
    with pytest.raises(InvalidConfig, match="--config"):
        world.syncer(" , ")
