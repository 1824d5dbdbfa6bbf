"""Two syncers with different files: one leads, the other stands by, says so, and follows it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import redis

from coordinator.syncer.leading import Leading
from coordinator.syncer.publish import RevisionPublisher
from fleet.config.difference import difference
from fleet.config.router import RouterConfig, parse_router_config
from fleet.lease import Lease
from fleet.state.connect import Client, connected
from fleet.state.keys import FleetKeys, PoolKeys
from fleet.state.registry import Registry
from tests.clocks import HandClock
from tests.member import Member
from tests.servers.local import RedisServer
from tests.stage import FLEET, Stage
from tests.waiting import until

TTL_MS = 1500


def write(file: Path, *codes: str) -> None:
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps({"processingPools": [{"code": code} for code in codes]}))
    draft.replace(file)


class Two:
    """Two syncers that read different files."""

    def __init__(self, stage: Stage, client: redis.Redis) -> None:
        self.stage, self.client = stage, client
        self.files = stage.directory / "one.json", stage.directory / "other.json"
        write(self.files[0], "SAME", "ONE")
        write(self.files[1], "SAME", "OTHER")
        self.first = self.start(0)
        until(lambda: "revision" in self.first.text(), 15, self.first.text)
        self.second = self.start(1)
        until(lambda: "we stand by" in self.second.text(), 15, self.second.text)

    def start(self, file: int) -> Member:
        return self.stage.start("syncer", "--config", str(self.files[file]))

    def revision(self) -> str:
        return str(self.client.hget(FleetKeys.config, "revision"))

    def pools(self) -> set[str]:
        body = json.loads(str(self.client.hget(FleetKeys.config, "body")))
        return {pool["code"] for pool in body["processingPools"]} - {"DEFAULT-POOL"}

    def drains(self, code: str) -> bool:
        return bool(self.client.hexists(PoolKeys(code).settings, "draining"))

    def published(self, *codes: str) -> None:
        until(lambda: self.pools() == set(codes), 15, self.said)

    def said(self) -> str:
        return self.first.text() + self.second.text()

    def ask(self, *command: str) -> Any:
        called = [FLEET, *command, "--json", "--redis", self.stage.redis_server.url]
        return json.loads(subprocess.run(called, capture_output=True, check=False, timeout=60).stdout)

    def warnings(self) -> list[str]:
        return [str(text) for text in self.client.hvals(FleetKeys.warnings) if "CONFIG_DIFFERS" in str(text)]


@pytest.fixture
def two(tmp_path: Path, redis_server: RedisServer) -> Any:
    stage = Stage(tmp_path, redis_server, ttl_ms=TTL_MS)
    with redis_server.client() as client:
        try:
            yield Two(stage, client)
        finally:
            for member in stage.members:
                if member.alive:
                    member.kill()


def test_two_syncers_with_different_files_make_one_revision_and_drain_no_pool(two: Two) -> None:
    before = two.revision()
    until(lambda: bool(two.warnings()), 15, two.second.text)
    assert (two.revision(), two.pools()) == (before, {"SAME", "ONE"})
    assert not two.drains("ONE")
    (warning,) = two.warnings()
    assert "pool OTHER only here, pool ONE only in force" in warning
    assert str(two.client.hget(FleetKeys.syncer, "owner")) in warning, "who leads is named"
    (problem,) = [text for text in two.ask("status")["problems"] if "stands by" in text]
    assert "pool OTHER only here" in problem
    for file, differs in zip(two.files, (False, True), strict=True):
        findings = two.ask("doctor", "--config", str(file))
        assert any("not the one in force" in finding["text"] for finding in findings) is differs
    write(two.files[0], "SAME", "ONE", "MORE")
    two.published("SAME", "ONE", "MORE")
    write(two.files[1], "SAME", "ONE", "MORE")
    until(lambda: "in force again" in two.second.text(), 15, two.second.text)


def test_a_syncer_that_ends_is_followed_at_once(two: Two) -> None:
    write(two.files[1], "SAME", "NEWER")
    two.first.send(signal.SIGTERM)
    two.published("SAME", "NEWER")
    until(lambda: two.drains("ONE"), 15, two.second.text)
    assert "we lead the syncers, after syncer-" in two.second.text()


def test_a_syncer_that_is_killed_is_followed_once_its_lease_has_lapsed(two: Two) -> None:
    two.first.kill()
    two.published("SAME", "OTHER")


def test_a_syncer_that_was_stopped_publishes_nothing_when_it_wakes(two: Two) -> None:
    two.first.send(signal.SIGSTOP)
    two.published("SAME", "OTHER")
    revision = two.revision()
    write(two.files[0], "SAME", "ONE", "OLD")
    two.first.send(signal.SIGCONT)
    until(lambda: "we stand by" in two.first.text(), 15, two.first.text)
    assert (two.revision(), two.pools()) == (revision, {"SAME", "OTHER"})


def test_a_wiped_redis_is_configured_by_who_led_or_by_who_takes_the_lead(two: Two) -> None:
    two.client.flushall()
    until(lambda: two.client.exists(FleetKeys.config, FleetKeys.syncer) == 2, 15, two.said)
    leader, published = two.client.hget(FleetKeys.syncer, "owner"), two.pools()
    until(lambda: two.client.zcard(FleetKeys.beats) == 2, 15, two.said)
    assert (
        two.pools()
        == published
        == ({"SAME", "ONE"} if str(two.first.process.pid) in str(leader) else {"SAME", "OTHER"})
    )


def config(*codes: str) -> RouterConfig:
    return parse_router_config(json.dumps({"processingPools": [{"code": code} for code in codes]}).encode())


class Candidate:
    def __init__(self, client: Client, clock: HandClock, name: str) -> None:
        self.warned: list[str] = []
        self.taken = 0
        self.lease = Lease(client=client, key=FleetKeys.syncer, owner=name, ttl_ms=TTL_MS, clock=clock)
        self.leading = Leading(
            name=name,
            lease=self.lease,
            publisher=RevisionPublisher(client=client),
            registry=Registry(client),
            clock=clock,
            ttl_ms=TTL_MS,
            warn=self._warn,
            on_lead=self._on_lead,
        )

    async def _warn(self, category: str, text: str) -> None:
        self.warned.append(f"{category} {text}")

    def _on_lead(self) -> None:
        self.taken += 1


async def test_a_difference_is_told_once_and_only_if_it_outlasts_a_takeover(redis_server: RedisServer) -> None:
    async with connected(redis_server.url) as client:
        clock = HandClock()
        one, other = Candidate(client, clock, "syncer-a"), Candidate(client, clock, "syncer-b")
        assert (await one.leading.publish(config("A"))).in_force
        assert not (await other.leading.publish(config("B"))).in_force
        assert (other.leading.differs, other.warned) == ("pool B only here, pool A only in force", [])
        clock.now_ms += TTL_MS + 1
        # By our own clock its lease is over; by that of Redis it is not, and it is granted anew.
        assert (await one.leading.publish(config("A"))).in_force
        for _ in range(3):
            assert not (await other.leading.publish(config("B"))).in_force
        (warning,) = other.warned
        assert warning.startswith("CONFIG_DIFFERS syncer-b stands by")
        assert "than syncer-a, whose is in force: pool B only here" in warning
        await other.leading.publish(config("A"))
        assert other.leading.differs == ""


async def test_what_was_read_before_the_lead_was_taken_replaces_nothing(redis_server: RedisServer) -> None:
    async with connected(redis_server.url) as client:
        clock = HandClock()
        one, other = Candidate(client, clock, "syncer-a"), Candidate(client, clock, "syncer-b")
        await one.leading.publish(config("NEW"))
        await other.leading.publish(config("OLD"))
        await one.leading.release()
        taken = await other.leading.publish(config("OLD"), is_fresh=lambda: False)
        assert (taken.in_force, other.taken, one.taken) == (False, 1, 0)
        found = await Registry(client).config()
        assert found is not None and difference(parse_router_config(found.body), config("NEW")) == ""
        # Of a Redis that was wiped what was read before is better than nothing.
        await client.flushall()
        assert (await other.leading.publish(config("OLD"), is_fresh=lambda: False)).in_force


async def test_two_calls_at_once_ask_for_one_grant(redis_server: RedisServer) -> None:
    async with connected(redis_server.url) as client:
        one = Candidate(client, HandClock(), "syncer-a")
        done = await asyncio.gather(*(one.leading.publish(config("A")) for _ in range(5)))
        assert len({published.revision for published in done}) == 1
        assert all(published.in_force for published in done)
