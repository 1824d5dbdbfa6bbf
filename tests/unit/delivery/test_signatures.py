"""Which signer a pool has, as its settings and its secret's file change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import fakeredis
import pytest

from coordinator.syncer.publish import RevisionPublisher
from fleet.alarms import Alarms
from fleet.config.router import PoolConfig, RouterConfig
from fleet.delivery import signatures
from fleet.delivery.signatures import Signatures, Unsignable
from fleet.errors import StateUnavailable
from fleet.sign import Signer
from fleet.state.connect import Client
from fleet.state.keys import FleetKeys
from fleet.state.known_pools import UNSIGNED, KnownPools
from fleet.state.observe import secrets_of
from fleet.state.pool import Pool, PoolSettings
from fleet.state.registry import Registry
from fleet.state.warnings import Warnings


class World:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.alarms = Alarms(warnings=Warnings(client), source="worker")
        self.signatures = Signatures(client=client, alarms=self.alarms)
        self.pools = KnownPools(Registry(client))

    async def publish(self, *pools: PoolConfig) -> None:
        await RevisionPublisher(client=self.client).publish(RouterConfig(pools=pools))

    async def signer(self, code: str) -> Signer | Unsignable | None:
        await self.pools.look()
        await self.signatures.follow(self.pools.marks)
        return self.signatures.of(code)

    async def signs_with(self, code: str, secret: str) -> bool:
        signer = await self.signer(code)
        return isinstance(signer, Signer) and signer.headers("m", 1, b"") == Signer(secret).headers("m", 1, b"")

    async def warnings(self) -> list[str]:
        await self.alarms.flush()
        return [warning.message for warning in await Warnings(self.client).list()]


def pool(code: str, secret: str | None = None, file: Path | None = None) -> PoolConfig:
    return PoolConfig(
        code=code, concurrency=1, capacity=50, secret=secret, secret_file=None if file is None else str(file)
    )


@pytest.fixture
async def world() -> AsyncIterator[World]:
    client = fakeredis.FakeAsyncRedis(decode_responses=True, server=fakeredis.FakeServer())
    yield World(client)
    await client.aclose()


async def test_a_pool_signs_with_its_secret_and_no_other(world: World) -> None:
    await world.publish(pool("A", "a-secret"), pool("B"))
    assert await world.signs_with("A", "a-secret")
    assert await world.signer("B") is None


async def test_a_new_revision_brings_another_secret_or_none(world: World) -> None:
    await world.publish(pool("A", "one"))
    assert await world.signs_with("A", "one")
    await world.publish(pool("A", "two"))
    assert await world.signs_with("A", "two")
    await world.publish(pool("A"))
    assert await world.signer("A") is None


async def test_a_pool_that_drains_signs_to_the_end_even_with_a_new_worker(world: World) -> None:
    await world.publish(pool("A", "one"))
    await world.publish()
    assert await World(world.client).signs_with("A", "one")


async def test_a_file_is_read_again_when_it_changes(world: World, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("one\n")
    await world.publish(pool("A", file=file))
    assert await world.signs_with("A", "one")
    file.write_text("another\n")
    assert await world.signs_with("A", "another")


@pytest.mark.parametrize("content", [None, b"", b"whsec_not base64", b"\xff\xfe"])
async def test_without_a_usable_file_nothing_may_leave_and_one_warning_says_so(
    world: World, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    await world.publish(pool("A", file=file))
    for _ in range(3):
        assert isinstance(await world.signer("A"), Unsignable)
    (warning,) = await world.warnings()
    assert "pool A" in warning and str(file) in warning and "not base64" not in warning
    file.write_text("good at last")
    assert await world.signs_with("A", "good at last")


async def test_a_file_that_goes_away_stops_what_it_signed(world: World, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("one")
    await world.publish(pool("A", file=file))
    assert await world.signs_with("A", "one")
    file.unlink()
    assert isinstance(await world.signer("A"), Unsignable)


async def test_only_pools_whose_secret_changed_are_read_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    async def watched(client: Client, codes: Sequence[str]) -> dict[str, tuple[str, str]]:
        read.extend(codes)
        return await secrets_of(client, codes)

    monkeypatch.setattr(signatures, "secrets_of", watched)
    await world.publish(pool("A", "one"), pool("B", "two"), pool("C"))
    await world.signer("A")
    await world.publish(pool("A", "one"), pool("B", "another"), pool("C"), pool("D"))
    assert await world.signs_with("B", "another")
    assert await world.signs_with("A", "one")
    assert sorted(read) == ["A", "B", "B"]


async def test_a_pool_that_an_earlier_version_made_known_is_read_at_each_revision(world: World) -> None:
    await Pool(world.client, "OLD").configure("1", PoolSettings(1, 50, secret="one"))
    await world.client.sadd(FleetKeys.pools, "OLD")
    assert await world.signs_with("OLD", "one")
    await Pool(world.client, "OLD").configure("2", PoolSettings(1, 50, secret="two"))
    await Registry(world.client).publish_config(b"{}")
    assert await world.signs_with("OLD", "two")
    # Beside pools with marks it has none.
    await Registry(world.client).add_pools({"NEW": UNSIGNED})
    assert await world.signs_with("OLD", "two")
    assert await world.signer("NEW") is None


async def test_what_one_node_does_not_tell_is_asked_for_again_and_keeps_no_other_pool_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = {"AWAY"}

    async def of_nodes_that_answer(client: Client, codes: Sequence[str]) -> dict[str, tuple[str, str]]:
        if silent.intersection(codes):
            raise StateUnavailable
        return await secrets_of(client, codes)

    monkeypatch.setattr(signatures, "secrets_of", of_nodes_that_answer)
    await world.publish(pool("AWAY", "whsec_AAAA"), pool("HERE", "whsec_BBBB"), pool("PLAIN"))
    assert await world.signs_with("HERE", "whsec_BBBB")
    assert await world.signer("PLAIN") is None
    assert isinstance(await world.signer("AWAY"), Unsignable), "it may not leave unsigned"
    assert world.signatures.unread == {"AWAY"}
    silent.clear()
    assert await world.signs_with("AWAY", "whsec_AAAA")
    assert world.signatures.unread == set()
