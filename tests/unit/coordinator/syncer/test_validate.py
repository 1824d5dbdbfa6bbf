"""Queues of a new configuration are looked at: what is wrong is a warning each, and nothing waits for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from coordinator.syncer.validate import CATEGORY, Validator
from fleet.config.router import QueueConfig, RouterConfig
from fleet.errors import SourceUnavailable, StateUnavailable
from fleet.sources.base import Source
from fleet.sources.check import problem_of, refusal_of
from tests.integration.owning import HeldSource


def config(*names: str) -> RouterConfig:
    return RouterConfig(queues=tuple(QueueConfig(name=name, uri=f"held://{name}") for name in names))


class World:
    def __init__(self) -> None:
        self.warnings: list[tuple[str, str]] = []
        self.told = asyncio.Event()
        self.refused = asyncio.Event()
        self.redis_away = False

    async def warn(self, category: str, text: str) -> None:
        if self.redis_away:
            self.redis_away = False
            self.refused.set()
            raise StateUnavailable
        self.warnings.append((category, text))
        self.told.set()

    @asynccontextmanager
    async def validator(self, problem_of: Callable[[QueueConfig], Awaitable[str]]) -> AsyncIterator[Validator]:
        validator = Validator(warn=self.warn, problem_of=problem_of)
        running = asyncio.create_task(validator.run())
        yield validator
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_each_queue_with_a_problem_is_one_warning_with_its_reason() -> None:
    world = World()

    async def problem_of(queue: QueueConfig) -> str:
        return {"b": "is away", "d": "is odd"}.get(queue.name, "")

    async with world.validator(problem_of) as validator, asyncio.timeout(10):
        validator.look_at(config("a", "b", "c", "d"))
        while len(world.warnings) < 2:
            world.told.clear()
            await world.told.wait()
    assert sorted(world.warnings) == [(CATEGORY, "queue b: is away"), (CATEGORY, "queue d: is odd")]


async def test_a_few_are_looked_at_at_a_time_and_a_newer_revision_goes_first() -> None:
    world, begun, several, go = World(), [], asyncio.Event(), asyncio.Event()

    async def problem_of(queue: QueueConfig) -> str:
        begun.append(queue.name)
        several.set()
        await go.wait()
        return "is new" if queue.name == "new" else ""

    async with world.validator(problem_of) as validator, asyncio.timeout(10):
        validator.look_at(config(*(f"q{i}" for i in range(100))))
        await several.wait()
        assert len(begun) == 8
        validator.look_at(config("new"))
        go.set()
        await world.told.wait()
    assert begun == [*(f"q{i}" for i in range(8)), "new"]


async def test_a_warning_that_cannot_be_stored_ends_nothing() -> None:
    world = World()
    world.redis_away = True

    async def problem_of(queue: QueueConfig) -> str:
        return "is away"

    async with world.validator(problem_of) as validator, asyncio.timeout(10):
        validator.look_at(config("a"))
        await world.refused.wait()
        validator.look_at(config("b"))
        await world.told.wait()
    assert world.warnings == [(CATEGORY, "queue b: is away")]


# A queue -------------------------------------------------------------------------------------------


def embedded(path: str) -> QueueConfig:
    return QueueConfig(name="q", uri=f"sqlite:///{path}?queue=q")


async def test_an_embedded_queue_is_looked_at_without_making_anything(tmp_path: Path) -> None:
    assert await problem_of(embedded(f"{tmp_path}/not/yet/q.db")) == ""
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").write_bytes(b"")
    assert await problem_of(embedded(f"{tmp_path}/file")) == ""
    assert (tmp_path / "file").read_bytes() == b""
    assert "is not a folder that can be written to" in await problem_of(embedded(f"{tmp_path}/file/q.db"))
    assert "not a file" in await problem_of(embedded(str(tmp_path)))


async def test_what_no_adapter_takes_is_named_without_its_password() -> None:
    for uri in ("gopher://me:s3cret@h/q", "sqlite:///q.db"):
        queue = QueueConfig(name="q", uri=uri)
        said = await problem_of(queue)
        assert said
        assert said == refusal_of(queue)
        assert "s3cret" not in said
    assert "no queue adapter for 'gopher'" in refusal_of(QueueConfig(name="q", uri="gopher://me:s3cret@h/q"))


async def test_another_queue_is_opened_and_closed_and_nothing_is_taken_from_it() -> None:
    source = HeldSource()

    def open_source(queue_name: str, uri: str, visibility_ms: int, *, connections: int = 1) -> Source:
        assert (queue_name, connections) == ("q", 3)
        return source

    queue = QueueConfig(name="q", uri="held://q", connections=3)
    assert await problem_of(queue, open_source=open_source) == ""
    assert (source.closed, source.polls) == (True, 0)
    source.cannot_open = "its broker is away"
    assert await problem_of(queue, open_source=open_source) == "its broker is away"


async def test_a_queue_that_hangs_or_raises_something_foreign_is_named() -> None:
    queue = QueueConfig(name="q", uri="held://q")

    class Odd(HeldSource):
        async def open(self) -> None:
            raise ValueError("s3cret")

    class Silent(HeldSource):
        async def open(self) -> None:
            await self.let_go.wait()

    class Sticky(Silent):
        async def close(self) -> None:
            await self.let_go.wait()

    def opening(source: Source) -> Callable[..., Source]:
        return lambda *_, **__: source

    assert await problem_of(queue, open_source=opening(Odd())) == "it cannot be opened (ValueError)"
    for kind in (Silent, Sticky):
        source = kind()
        async with asyncio.timeout(5):
            said = await problem_of(queue, open_source=opening(source), within_s=0.05)
        assert said == "it could not be opened within 0.05 s"
        assert source.closed is (kind is Silent)

    class Away(HeldSource):
        async def close(self) -> None:
            raise SourceUnavailable("gone meanwhile")

    assert await problem_of(queue, open_source=opening(Away())) == "gone meanwhile"
