"""Calls to Redis: counted by kind at four small sizes, reckoned for a large one, and what each kind costs Redis.

A kind is a script's name or a command's. What is counted of a fleet of W workers and P pools is taken to be
a + b·W + c·P + d·W·P; four corners (few and many of each) give the four numbers. What would be negative is 0.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleet.state.connect import Client, connected
from fleet.state.scripts import names, script

_AT_ONCE = 8
_TRIAL = 40
_LONG_ENOUGH_US = 60_000
_MOST = 3_000


@dataclass(slots=True)
class Calls:
    """What went to one Redis, by kind, and one example of each."""

    counts: Counter[str] = field(default_factory=Counter)
    wanting: int = 0
    """Exchanges that asked for work and did nothing else. Those that settle or trim, which a delivery needs anyway, ask
    for more in the same call."""
    examples: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def watch(self, client: Client) -> None:
        """Count what is sent over this client. Subscriptions have connections of their own, which are not seen."""
        execute, make_pipeline = client.execute_command, client.pipeline

        async def counted(*command: Any, **options: Any) -> Any:
            self._note(command)
            return await execute(*command, **options)

        def pipeline(*arguments: Any, **options: Any) -> Any:
            made = make_pipeline(*arguments, **options)
            send = made.execute

            async def sent(*given: Any, **more: Any) -> Any:
                for command, _ in made.command_stack:
                    self._note(command)
                return await send(*given, **more)

            made.execute = sent
            return made

        client.execute_command, client.pipeline = counted, pipeline

    def _note(self, command: tuple[Any, ...]) -> None:
        kind = _kind(command)
        self.counts[kind] += 1
        self.examples[kind] = command
        if kind == "exchange":
            want, trims, settlements = (int(command[3 + int(command[2]) + at]) for at in _CARRIES)
            self.wanting += want > 0 and not trims and not settlements


_BY_DIGEST = {script(name).digest: name for name in names()}
_CARRIES = [script("exchange").arguments.index(name) for name in ("want", "trims", "settlements")]


def _kind(command: tuple[Any, ...]) -> str:
    name = str(command[0]).upper()
    if name == "EVALSHA":
        return _BY_DIGEST[command[1]]
    # EVAL follows only where the server did not know a script yet.
    return name


@dataclass(frozen=True, slots=True)
class Corner:
    workers: int
    pools: int
    a_second: Mapping[str, float]


def reckon(corners: Sequence[Corner], *, workers: int, pools: int) -> dict[str, float]:
    """Calls a second of each kind at that size. `corners`: few and many workers, each with few and many pools."""
    by_size = {(corner.workers, corner.pools): corner.a_second for corner in corners}
    (few_w, many_w), (few_p, many_p) = (sorted({size[i] for size in by_size}) for i in (0, 1))
    found = {}
    for kind in {kind for corner in corners for kind in corner.a_second}:
        f00, f10, f01, f11 = (
            by_size[size].get(kind, 0.0)
            for size in ((few_w, few_p), (many_w, few_p), (few_w, many_p), (many_w, many_p))
        )
        product = max(0.0, (f11 - f10 - f01 + f00) / ((many_w - few_w) * (many_p - few_p)))
        by_worker = max(0.0, (f10 - f00) / (many_w - few_w) - product * few_p)
        by_pool = max(0.0, (f01 - f00) / (many_p - few_p) - product * few_w)
        rest = max(0.0, f00 - by_worker * few_w - by_pool * few_p - product * few_w * few_p)
        found[kind] = rest + by_worker * workers + by_pool * pools + product * workers * pools
    return found


async def cpu_us(url: str, examples: Mapping[str, tuple[Any, ...]]) -> dict[str, float]:
    """CPU time of Redis for a call of each kind, reading and answering included, when calls come thick and fast."""
    async with connected(url) as client:
        found = {}
        for kind, command in sorted(examples.items()):
            trial = max(await _repeat(client, command, _TRIAL), 1.0)
            times = int(min(_MOST, max(_TRIAL, _LONG_ENOUGH_US / trial)))
            found[kind] = await _repeat(client, command, times)
        return found


async def _repeat(client: Client, command: tuple[Any, ...], times: int) -> float:
    left = times

    async def send() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await client.execute_command(*command)

    before = await _cpu_s(client)
    await asyncio.gather(*(send() for _ in range(_AT_ONCE)))
    return (await _cpu_s(client) - before) * 1e6 / times


async def _cpu_s(client: Client) -> float:
    info = await client.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])
