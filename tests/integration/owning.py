"""A coordinator's consumers on a real Redis, with time and sources as a test wants them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from coordinator.directory import Directory
from coordinator.lead import Leadership
from coordinator.ownership import Ownership
from coordinator.parts import Parts
from coordinator.put_off import PoolLimits
from coordinator.rooms import Rooms
from coordinator.rounds import Rounds
from coordinator.syncer.publish import RevisionPublisher
from fleet.alarms import Alarms
from fleet.config.router import parse_router_config
from fleet.errors import SourceUnavailable
from fleet.lease import Lease
from fleet.operate import views
from fleet.sources.base import Depth, Receipt, Received, Source
from fleet.state.connect import Client, connected
from fleet.state.keys import FleetKeys
from fleet.state.registry import Registry
from fleet.state.warnings import Warnings
from tests.clocks import HandClock
from tests.waiting import eventually

TTL_MS = 600_000
"""Longer than any test lets its clock run between two renewals."""
NAME = "coordinator-1"


class HeldSource:
    """A poll of it returns when the test says what; until then it hangs, like a connection that went silent."""

    holds_groups = True
    shows_in_order = True
    is_looked_into = False
    gives_few_groups = False
    crash_wait_ms = 0
    visibility_ms = 600_000

    def __init__(self) -> None:
        self.polls = 0
        self.answers: asyncio.Queue[list[Received]] = asyncio.Queue()
        self.cannot_open = ""
        self.cannot_nack = ""
        self.hangs_in = ""
        self.ignores_cancel = False
        """As a library does that swallows what interrupts it."""
        self.let_go = asyncio.Event()
        self.closed = False
        self.acked: list[str] = []
        self.nacked: list[str] = []
        self.extended: list[str] = []
        self.stands = Depth(0, 0, 0.0)
        self.expired: set[str] = set()
        """Whose handles are none any more."""

    async def open(self) -> None:
        if self.hangs_in == "open":
            await self.let_go.wait()
        if self.cannot_open:
            raise SourceUnavailable(self.cannot_open)

    async def close(self) -> None:
        if self.hangs_in == "close":
            await self.let_go.wait()
        self.closed = True

    async def poll(self, max_messages: int, wait_ms: int) -> list[Received]:
        self.polls += 1
        try:
            return await self.answers.get()
        except asyncio.CancelledError:
            if not self.ignores_cancel:
                raise
            while not self.let_go.is_set():
                with suppress(asyncio.CancelledError):
                    await self.let_go.wait()
            return []

    async def ack(self, held: Sequence[Receipt]) -> list[bool]:
        known = [one.broker_id not in self.expired for one in held]
        self.acked += [one.broker_id for one, is_known in zip(held, known, strict=True) if is_known]
        return known

    async def nack(self, held: Sequence[tuple[Receipt, int]]) -> list[bool]:
        if self.cannot_nack:
            raise SourceUnavailable(self.cannot_nack)
        self.nacked += [one.broker_id for one, _ in held]
        return [True] * len(held)

    async def extend(self, held: Sequence[Receipt], visibility_ms: int) -> list[bool]:
        assert visibility_ms == self.visibility_ms
        self.extended += [one.broker_id for one in held]
        return [True] * len(held)

    async def depth(self) -> Depth:
        return self.stands


class HeldRooms(Rooms):
    """There is room, or the test says at which moments a look finds none, or it is as the pools have it."""

    as_it_is = False
    looks: asyncio.Queue[None] | None = None
    waits = 0

    async def wait(
        self, shares: Mapping[str, float], wanted: int, *, others: bool = False, by_groups: bool = False
    ) -> int:
        if self.as_it_is:
            return await super().wait(shares, wanted, others=others, by_groups=by_groups)
        if self.looks is None:
            return wanted
        self.waits += 1
        await self.looks.get()
        return 0


@dataclass
class Owning:
    client: Client
    clock: HandClock
    lead: Leadership
    ownership: Ownership
    rounds: Rounds
    rooms: HeldRooms
    alarms: Alarms
    directory: Directory
    sources: list[HeldSource] = field(default_factory=list)
    """Those that were opened, in turn."""
    next_source: Callable[[], HeldSource] = HeldSource

    async def configure(self, *queues: str, pools: Sequence[str] = ("P",), visibility_s: int = 600) -> None:
        document = {
            "queues": [
                {"queueName": name, "queueUri": f"held://{name}", "visibilityTimeout": visibility_s} for name in queues
            ],
            "processingPools": [{"code": code} for code in pools],
        }
        await RevisionPublisher(client=self.client).publish(parse_router_config(json.dumps(document).encode()))
        await self.directory.refresh()

    async def advance(self, seconds: float) -> None:
        """Let time pass, and the coordinator look."""
        self.clock.now_ms += round(seconds * 1000)
        self.rounds.look()

    async def polls(self, times: int, *, source: int = -1) -> None:
        def polled() -> bool:
            there = self.sources[source:] if source < 0 else self.sources[source : source + 1]
            return bool(there) and there[0].polls >= times

        await eventually(polled)

    async def warned(self) -> Counter[tuple[str, str]]:
        await self.alarms.flush()
        return Counter((warning.category, warning.severity) for warning in await Warnings(self.client).list())

    async def shown(self) -> dict[str, Any]:
        """`/monitoring/consumer-health` of the queue, as of our heartbeat."""
        record = {"role": "coordinator", "name": NAME, "host": "here", **self.ownership.consumers()}
        await Registry(self.client).beat(NAME, record, ttl_ms=TTL_MS)
        return (await views.consumers_json(self.client))["q"]


@asynccontextmanager
async def an_owner(url: str, *, patience_s: float = 5.0, stop_within_s: float = 10.0) -> AsyncIterator[Owning]:
    async with connected(url) as client:
        clock, alarms = HandClock(), Alarms(warnings=Warnings(client), source="coordinator")

        def changed() -> None:
            rooms.forget()
            owning.rounds.look()

        directory = Directory(registry=Registry(client), look_every_s=60, on_change=changed)

        def open_source(queue_name: str, uri: str, visibility_ms: int, *, connections: int = 1) -> Source:
            source = owning.next_source()
            owning.sources.append(source)
            return source

        registry = Registry(client)
        rooms = HeldRooms(client=client, clock=clock, limits_of=lambda _: PoolLimits(50, 1), full=lambda: False)
        leadership = Lease(client=client, key=FleetKeys.leader, owner=NAME, ttl_ms=TTL_MS, clock=clock)
        lead = Leadership(name=NAME, lease=leadership)
        ownership = Ownership(
            parts=Parts(
                name=NAME,
                client=client,
                registry=registry,
                directory=directory,
                rooms=rooms,
                alarms=alarms,
                clock=clock,
            ),
            ttl_ms=TTL_MS,
            enabled=True,
            on_crash=crashed,
            open_source=open_source,
            patience_s=patience_s,
            stop_within_s=stop_within_s,
        )
        rounds = Rounds(name=NAME, registry=registry, lead=lead, ownership=ownership, ttl_ms=TTL_MS, on_crash=crashed)
        owning = Owning(client, clock, lead, ownership, rounds, rooms, alarms, directory)
        running = asyncio.create_task(rounds.run())
        try:
            yield owning
        finally:
            for source in owning.sources:
                source.let_go.set()
            if (looks := rooms.looks) is not None:
                rooms.looks = None
                looks.put_nowait(None)
            async with asyncio.timeout(15):
                await rounds.stop()
                await running
                await alarms.flush()


def crashed(task: asyncio.Task[None]) -> None:
    """Nothing may end in an error that nobody foresaw."""
    assert task.cancelled() or task.exception() is None
