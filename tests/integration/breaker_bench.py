"""A process as far as its circuit breakers go, on a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fleet.clock import SystemClock
from fleet.delivery.breaker import ASK, PASS, PROBE, Admit
from fleet.delivery.breakers import Breakers
from fleet.state.breakers import BreakerRules, BreakerView, SharedBreakers
from fleet.state.connect import Client, connect
from fleet.state.keys import BREAKER_CHANNEL
from fleet.state.signals import Signals
from fleet.waiting import cancel
from tests.waiting import eventually

ORIGIN, OTHER = "https://a.example", "https://b.example"
RULES = BreakerRules(open_ms=60)
PERMIT_MS = 1000
WITHIN_S = 5.0


class SteppedClock(SystemClock):
    """The real clock, and what a test adds to it."""

    def __init__(self) -> None:
        self.ahead_ms = 0.0

    def boot_ms(self) -> float:
        return super().boot_ms() + self.ahead_ms


class Bench:
    """A worker as far as breakers go."""

    def __init__(self, client: Client, url: str, name: str, *, rules: BreakerRules = RULES, **more: float) -> None:
        self.client = client
        self.clock = SteppedClock()
        self.heard = asyncio.Event()
        self.breakers = Breakers(
            shared=SharedBreakers(client, rules=rules, permit_ms=PERMIT_MS),
            worker=name,
            clock=self.clock,
            rules=rules,
            **more,  # type: ignore[arg-type]
        )
        self.subscribed = asyncio.Event()
        self._signals = Signals(
            client=client, url=url, handlers={BREAKER_CHANNEL: self._on_message}, on_subscribed=self._on_subscribed
        )
        self._tasks: list[asyncio.Task[None]] = []

    def _on_message(self, message: str) -> None:
        self.breakers.on_message(message)
        self.heard.set()

    def _on_subscribed(self) -> None:
        self.breakers.resync()
        self.subscribed.set()

    async def start(self) -> None:
        self._tasks = [asyncio.ensure_future(job) for job in (self.breakers.run(), self._signals.run())]
        async with asyncio.timeout(WITHIN_S):
            await self.subscribed.wait()

    async def die(self) -> None:
        await cancel(self._tasks)

    def admit(self, origin: str = ORIGIN) -> Admit:
        return self.breakers.admit(origin, self.clock.boot_ms())

    def record(self, ok: bool, origin: str = ORIGIN, *, probe: bool = False) -> None:
        self.breakers.record(origin, ok, self.clock.boot_ms(), probe=probe)

    def fail(self, origin: str = ORIGIN) -> None:
        for _ in range(RULES.window):
            assert self.admit(origin) is PASS
            self.record(False, origin)

    async def opened(self, origin: str = ORIGIN) -> None:
        """It knows. (On a busy machine it may be half-open by now.)"""
        await self.until(lambda: self.admit(origin) is not PASS)

    async def half_open(self, origin: str = ORIGIN) -> None:
        await self.until(lambda: self.admit(origin) is ASK)

    async def asked(self, origin: str = ORIGIN) -> Admit:
        """What a message that asks for the permit is told."""
        told: asyncio.Future[Admit] = asyncio.get_running_loop().create_future()
        self.breakers.ask(origin, lambda: told.set_result(self.admit(origin)))
        async with asyncio.timeout(WITHIN_S):
            return await told

    async def probe(self, ok: bool) -> None:
        """Send a probe, when it is our turn."""
        await self.permitted()
        self.record(ok, probe=True)

    async def permitted(self, origin: str = ORIGIN, *, within_s: float = WITHIN_S) -> None:
        async with asyncio.timeout(within_s):
            await self.half_open(origin)
            while await self.asked(origin) is not PROBE:
                await self.half_open(origin)

    async def views(self) -> list[BreakerView]:
        return (await SharedBreakers(self.client, rules=RULES).all())[1]

    async def until(self, is_so: Callable[[], bool]) -> None:
        await eventually(is_so, within_s=WITHIN_S)


@asynccontextmanager
async def benches(url: str, *names: str, rules: BreakerRules = RULES, **more: float) -> AsyncIterator[list[Bench]]:
    clients = [await connect(url, timeout_s=2.0) for _ in names]
    found = [Bench(client, url, name, rules=rules, **more) for client, name in zip(clients, names, strict=True)]
    try:
        for bench in found:
            await bench.start()
        yield found
    finally:
        for bench in found:
            await bench.die()
            await bench.client.aclose()
