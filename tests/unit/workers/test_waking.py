"""Who looks into which pool, and who is told when one cannot."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from fleet.errors import StateUnavailable
from tests.unit.workers.links import Link
from tests.waiting import eventually
from workers.homes import HOMES
from workers.waking import Waking


class Registry:
    """Knows workers, and hears what is passed on."""

    def __init__(self) -> None:
        self.workers: dict[str, dict[str, Any]] = {}
        self.asked: list[list[str]] = []
        self.passed_on: list[tuple[str, int, int]] = []
        self.heard = asyncio.Event()
        self.away = False

    async def records(self, names: list[str]) -> dict[str, dict[str, Any]]:
        self.asked.append(names)
        if self.away:
            raise StateUnavailable("away")
        return {name: self.workers[name] for name in names if name in self.workers}

    async def wake(self, code: str, start: int, end: int) -> None:
        self.passed_on.append((code, start, end))
        self.heard.set()


class Signals:
    def __init__(self) -> None:
        self.followed: set[str] = set()
        self.changed = asyncio.Event()

    async def follow(self, names: set[str]) -> None:
        self.followed = names
        self.changed.set()


class Scene:
    def __init__(self, *codes: str) -> None:
        self.links = {code: Link(code) for code in codes}
        self.registry, self.signals = Registry(), Signals()
        self.has_room, self.stopping = True, False
        self.waking = Waking(
            name="me",
            globs=("*",),
            registry=cast(Any, self.registry),
            links=cast(Any, self.links),
            has_room=lambda: self.has_room,
            is_stopping=lambda: self.stopping,
        )

    async def settled(self) -> None:
        async with asyncio.timeout(5):
            await self.signals.changed.wait()
        self.signals.changed.clear()

    async def __aenter__(self) -> Scene:
        self.tasks = [asyncio.ensure_future(job) for job in self.waking.jobs(cast(Any, self.signals))]
        self.waking.pools_changed()
        await self.settled()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)


async def test_alone_one_is_the_home_of_every_pool_and_asks_each() -> None:
    async with Scene("A", "B") as scene:
        assert scene.signals.followed == {"A", "B"}
        assert [(link.place, link.wakes) for link in scene.links.values()] == [(0, 1), (0, 1)]


async def test_among_many_one_hears_of_few_pools_and_asks_only_those_it_is_the_first_of() -> None:
    async with Scene(*(f"P{number}" for number in range(400))) as scene:
        scene.registry.workers = {f"w{n}": {"role": "worker", "globs": ["*"]} for n in range(19)}
        for link in scene.links.values():
            link.wakes = 0
        scene.waking.on_alive({"me", *scene.registry.workers})
        await scene.settled()
        ours = {code for code, link in scene.links.items() if link.place < HOMES}
        assert scene.signals.followed == ours
        assert 10 < len(ours) < 100
        assert sum(link.wakes for link in scene.links.values()) == 0, "it was the first of them all before"


async def test_the_living_are_asked_once_what_they_serve_and_others_than_workers_are_none() -> None:
    async with Scene("A", "B") as scene:
        scene.registry.workers = {"you": {"role": "worker", "globs": ["B*"]}, "syncer": {"role": "syncer"}}
        for _ in range(2):
            scene.waking.on_alive({"me", "you", "syncer"})
            scene.waking.pools_changed()
            await scene.settled()
        assert [names for names in scene.registry.asked if names] == [["syncer", "you"]]
        assert scene.links["A"].place == 0


async def test_one_that_has_not_opened_its_pools_is_counted_on_once_it_has() -> None:
    async with Scene("A", "B", "C") as scene:
        scene.registry.workers = {"you": {"role": "worker"}}
        scene.waking.on_alive({"me", "you"})
        await scene.settled()
        assert {link.place for link in scene.links.values()} == {0}
        scene.registry.workers["you"]["globs"] = ["*"]
        await scene.settled()
        assert {link.place for link in scene.links.values()} <= {0, 1}
        assert len(scene.registry.asked) >= 2


async def test_one_that_goes_leaves_its_pools_to_who_is_left_and_those_are_asked_at_once() -> None:
    async with Scene(*(f"P{number}" for number in range(50))) as scene:
        scene.registry.workers = {"you": {"role": "worker", "globs": ["*"]}}
        scene.waking.on_alive({"me", "you"})
        await scene.settled()
        theirs = [link for link in scene.links.values() if link.place == 1]
        assert theirs
        before = [link.wakes for link in theirs]
        scene.waking.on_alive({"me"})
        await scene.settled()
        assert [link.place for link in theirs] == [0] * len(theirs)
        assert [link.wakes for link in theirs] == [wakes + 1 for wakes in before]


async def test_while_redis_is_away_who_is_unknown_has_no_pools() -> None:
    async with Scene("A") as scene:
        scene.registry.away = True
        scene.waking.on_alive({"me", "you"})
        await scene.settled()
        assert scene.links["A"].place == 0


async def test_work_wakes_and_what_is_due_is_looked_at_by_the_first_alone() -> None:
    async with Scene("A") as scene:
        link = scene.links["A"]
        scene.waking.on_pool("A", "+1")
        scene.waking.on_pool("A", None)
        assert link.wakes == 3, "what was missed may have been work"
        scene.waking.on_pool("A", "250")
        assert link.dues == [250]
        link.place = 1
        scene.waking.on_pool("A", "100")
        scene.waking.on_pool("A", "+1")
        assert (link.dues, link.wakes) == ([250], 3)
        scene.waking.on_pool("A", None)
        scene.waking.on_pool("A", "+2")
        assert link.wakes == 5, "there is a lane for each of the two"


@pytest.mark.parametrize("why", ["no room", "stopping"])
async def test_who_can_take_nothing_passes_on(why: str) -> None:
    async with Scene("A") as scene:
        link = scene.links["A"]
        link.place = 1
        scene.has_room, scene.stopping = why != "no room", why == "stopping"
        scene.waking.on_pool("A", "+2")
        async with asyncio.timeout(5):
            await scene.registry.heard.wait()
        assert scene.registry.passed_on == [("A", 2, 4)]
        assert link.wakes == (2 if why == "no room" else 1), "it stands in line for room all the same"


async def test_the_first_home_looks_also_when_it_can_take_nothing_and_its_call_tells_others() -> None:
    async with Scene("A") as scene:
        scene.has_room, scene.stopping = False, True
        for message in ("+1", "+0", None):
            scene.waking.on_pool("A", message)
        assert (scene.links["A"].looks, scene.registry.passed_on) == (4, [])


@pytest.mark.parametrize(("place", "asked"), [(1, (2, 4)), (2, (4, 8)), (3, (6, 12))])
async def test_each_that_is_full_asks_those_behind_it_so_that_everybody_is_reached(
    place: int, asked: tuple[int, int]
) -> None:
    async with Scene("A") as scene:
        scene.has_room = False
        scene.waking._wake_or_pass_on(cast(Any, scene.links["A"]), place)
        async with asyncio.timeout(5):
            await scene.registry.heard.wait()
        assert scene.registry.passed_on == [("A", *asked)]


async def test_a_full_worker_passes_on_now_and_then_and_forgets_nothing() -> None:
    async with Scene("A") as scene:
        scene.has_room = False
        scene.links["A"].place = 1
        for _ in range(5):
            scene.waking.on_pool("A", "+2")
        await eventually(lambda: len(scene.registry.passed_on) >= 2)
        assert scene.registry.passed_on == [("A", 2, 4)] * 2


async def test_where_many_are_full_nobody_passes_on() -> None:
    async with Scene("A") as scene:
        scene.has_room = False
        scene.waking._wake_or_pass_on(cast(Any, scene.links["A"]), 8)
        await asyncio.sleep(0)
        assert scene.registry.passed_on == []


async def test_only_the_places_that_are_asked_look() -> None:
    async with Scene("A") as scene:
        scene.waking.on_others("A\x1f2\x1f4")
        assert scene.links["A"].wakes == 1
        scene.waking.on_others("A\x1f0\x1f1")
        assert scene.links["A"].wakes == 2
        scene.waking.on_others("unknown\x1f0\x1f1")


async def test_when_redis_is_back_each_home_asks() -> None:
    async with Scene("A", "B") as scene:
        scene.links["B"].place = HOMES
        scene.waking.ask_all()
        await eventually(lambda: scene.links["A"].wakes >= 2)
        assert scene.links["B"].wakes == 1
