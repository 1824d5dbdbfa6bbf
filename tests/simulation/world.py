"""One run of a scenario in one event loop, from the first process to an empty fleet or the first violation."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import logging
import random
import traceback
import zlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from unittest import mock

from fleet.errors import FleetError
from fleet.state.pool import AWAY_GRACE_MS
from fleet.state.scripts import names, script
from tests.simulation import clock, faults, together
from tests.simulation.checks import Checks, Excuses, Violation
from tests.simulation.endpoint import SLOWEST_S, Endpoint, Endpoints
from tests.simulation.fault import CARRIED_OUT as ONE_AT_A_TIME
from tests.simulation.fleet import Fleet
from tests.simulation.loop import Event, Livelock, Loop, Process
from tests.simulation.network import Network, Weather
from tests.simulation.producer import send
from tests.simulation.redis import RedisHost, SimulatedClient, know_scripts
from tests.simulation.scenario import SENDING_S, FaultPlan, Scenario
from tests.simulation.sources.activemq import ActiveMqBroker
from tests.simulation.sources.broker import Broker
from tests.simulation.sources.jetstream import JetStreamBroker
from tests.simulation.sources.sqs import SqsBroker

LOOK_S = 0.5
SLOW_FOR_S = 30.0
"""How long after the last fault limits, latencies and refusals stay as they are, in most runs."""
HEALTHY_WITHIN_S = 240.0
"""Within this time after the last fault, what goes to healthy endpoints is delivered, whatever becomes of the rest …"""
NO_PROGRESS_S = 100.0
"""… or at least some of it in this time, if a pool with few slots gives them to both."""
DRAINED_WITHIN_S = 420.0
"""In addition to the delays that endpoints ask for."""
CARRIED_OUT = {**ONE_AT_A_TIME, **together.CARRIED_OUT}
Operate = Callable[["World", random.Random, SimulatedClient, str], Coroutine[Any, Any, None]]


class World:
    def __init__(self, scenario: Scenario, *, folder: str, trace: Callable[[str], None] | None = None) -> None:
        self.scenario = scenario
        self._trace = trace
        self._folder = folder
        self._chance = random.Random(scenario.seed ^ 0x5EED)
        self.digest = 0
        self.events = 0
        self.loop = Loop()
        self.network = Network(self.loop, random.Random(self._chance.getrandbits(64)))
        self.network.on_call = self._on_call
        self.redis = RedisHost(self.loop, self.network)
        self.endpoints = Endpoints(self.loop, self.network, random.Random(self._chance.getrandbits(64)))
        self.excuses = Excuses()
        self.brokers = self._make_brokers()
        self.extra_pools = 0
        self.configs = {"main": self._first_config()}
        self._make_endpoints()
        self.checks = Checks(
            scenario=scenario, loop=self.loop, redis=self.redis, endpoints=self.endpoints, excuses=self.excuses
        )
        self.fleet = Fleet(
            scenario=scenario,
            loop=self.loop,
            network=self.network,
            redis=self.redis,
            endpoints=self.endpoints,
            brokers=self.brokers,
            config_of=self._config_of,
            on_crash=self._on_crash,
        )
        self.producer = Process("producer", 1)
        self._operators = 0
        self.sent = 0
        self._all_well = False
        """Once it is true, no endpoint falls sick again."""
        self._told: set[str] = set()
        self._reconfigured()

    # Set up -----------------------------------------------------------------------------------------

    def _make_brokers(self) -> dict[str, Broker]:
        made: dict[str, Broker] = {}
        for queue in self.scenario.queues:
            chance = random.Random(self._chance.getrandbits(64))
            match queue.kind:
                case "fifo" | "standard":
                    made[queue.name] = SqsBroker(self.loop, queue.name, is_fifo=queue.kind == "fifo", chance=chance)
                case "jetstream":
                    made[queue.name] = JetStreamBroker(self.loop, queue.name)
                case "activemq":
                    made[queue.name] = ActiveMqBroker(self.loop, queue.name)
                case _:
                    pass
        self.excuses.void_acks = {name: broker.void_acks for name, broker in made.items()}
        return made

    @property
    def has_own_queues(self) -> bool:
        return any(queue.kind == "own" for queue in self.scenario.queues)

    def _first_config(self) -> dict[str, Any]:
        queues = [
            {
                "queueName": queue.name,
                "queueUri": queue.uri,
                "visibilityTimeout": queue.visibility_s,
            }
            for queue in self.scenario.queues
        ]
        return {"queues": queues, "processingPools": [pool.to_json() for pool in self.scenario.pools]}

    def config_copy(self) -> dict[str, Any]:
        return copy.deepcopy(self.configs["main"])

    def _config_of(self, name: str) -> bytes:
        return json.dumps(self.configs[name]).encode() if name in self.configs else b""

    def _make_endpoints(self) -> None:
        origin_of = {group.name: group.origin for group in self.scenario.groups}
        for plan in self.scenario.endpoints:
            self.endpoints.by_origin[plan.origin] = Endpoint(
                plan.origin,
                plan.fences,
                plan.latency_s,
                mood=plan.stays_sick or "well",  # type: ignore[arg-type]
                natures={
                    m.id: copy.copy(m.nature) for m in self.scenario.messages if origin_of[m.group] == plan.origin
                },
            )

    # What faults do ---------------------------------------------------------------------------------

    def until(self, after_s: float, end: Callable[[], object]) -> None:
        self.loop.later(after_s, end)

    def clears(self, weather: Weather) -> None:
        if weather in self.network.weather:
            self.network.weather.remove(weather)
            if weather.is_cut and weather.process:
                self.redis.break_subscriptions(weather.process)

    def forgets(self) -> None:
        """Redis has lost something, from here on."""
        self.excuses.forgot_s = self.excuses.ended_s = self.loop.now_s
        self.excuses.ever_forgot = self.excuses.forgot_just_now = True

    def recovers(self, endpoint: Endpoint) -> None:
        plan = next(plan for plan in self.scenario.endpoints if plan.origin == endpoint.origin)
        endpoint.mood = (not self._all_well and plan.stays_sick) or "well"  # type: ignore[assignment]

    def reconfigured(self) -> None:
        self._reconfigured()

    def _reconfigured(self) -> None:
        self.excuses.configured_s = self.loop.now_s
        for config in self.configs.values():
            for pool in config["processingPools"]:
                self.excuses.policies[pool["code"]].add(pool["onFailure"])

    def operator(self, act: Operate, chance: random.Random, code: str) -> None:
        """Somebody at a command line."""
        self._operators += 1
        process = Process(f"operator{self._operators}", 10 + self._operators)

        async def operate() -> None:
            with contextlib.suppress(FleetError):
                await act(self, chance, SimulatedClient(self.network, self.redis, self.loop), code)

        self.loop.start(process, operate()).add_done_callback(self._on_end_of_ours)

    def _carry_out(self, fault: FaultPlan) -> None:
        did = CARRIED_OUT[fault.kind](self, fault.chance())
        self.note("fault", f"{fault.number} {fault.kind}: {did}")

    # What is written down -----------------------------------------------------------------------------

    def note(self, who: str, what: str) -> None:
        self.events += 1
        self.digest = zlib.crc32(f"{self.loop.now_s:.6f} {who} {what}".encode(), self.digest)
        if self._trace is not None:
            self._trace(f"{self.loop.now_s:9.4f} {who:<13} {what}")

    def _on_call(self, process: Process | None, what: str) -> None:
        self.events += 1
        self.digest = zlib.crc32(f"{self.loop.now_s:.6f} {process} {what}".encode(), self.digest)
        if self._trace is not None and what not in _DULL:
            self._trace(f"{self.loop.now_s:9.4f} {process!s:<13} {what}")

    def _on_crash(self, process: Process, error: BaseException | None, text: str) -> None:
        if error is None:
            self.checks.broken("crash", f"{process} ended with an error")
            return
        frames = [
            f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_tb(error.__traceback__)
            if "/tests/" not in frame.filename
        ]
        self.checks.broken(
            "crash", f"{process} ended: {type(error).__name__}: {error}, by {' > '.join(frames[-5:])} ({text})"
        )

    # The run ------------------------------------------------------------------------------------------

    def run(self) -> Violation | None:
        try:
            with (
                clock.in_place(self.loop, random.Random(self._chance.getrandbits(64))),
                self.fleet.in_place(),
                self._logs(),
                mock.patch.object(asyncio, "Event", Event),
                contextlib.chdir(self._folder),  # the folder's name is random, and must not be in a URI
            ):
                know_scripts({script(name).digest: name for name in names()})
                self.loop.run_until_complete(self.loop.create_task(self._history()))
        except Livelock as error:
            self.checks.broken("livelock", str(error))
        return self.checks.violation

    async def _history(self) -> None:
        self.fleet.begin()
        for queue in self.scenario.queues:
            self.loop.start(self.producer, send(self, queue.name)).add_done_callback(self._on_end_of_ours)
        for fault in self.scenario.faults:
            self.loop.later(fault.at_s, self._carry_out, fault)
        await self._pass(SENDING_S)
        if await self._is_over(lambda: False, 0.0):
            return
        faults.heal(self)
        if self.excuses.stepped_back and self.excuses.ever_forgot:
            # If nothing remembers epochs, they rise with the clock: endpoints would refuse them until it has caught up.
            for endpoint in self.endpoints.by_origin.values():
                endpoint.seen.clear()
                # A slow endpoint notes the epoch of an earlier request only when that is done.
                self.until(SLOWEST_S, endpoint.seen.clear)
        self.note("world", "heals")
        for name in self.fleet.names():
            process = self.fleet.process(name)
            if process.is_stopped:
                self.loop.continue_process(process)
        if await self._is_over(self._is_drained, SLOW_FOR_S):
            return
        if self.scenario.is_eased:
            self._ease()
        if any(plan.stays_sick for plan in self.scenario.endpoints):
            if await self._is_over(self._healthy_are_through, HEALTHY_WITHIN_S - NO_PROGRESS_S):
                return
            behind, within_s = self._behind(), NO_PROGRESS_S
            if self.excuses.ever_forgot:
                # If Redis forgot that something is back already, it is waited for again, twice.
                within_s += 2 * (AWAY_GRACE_MS / 1000 + max(queue.visibility_s for queue in self.scenario.queues))
            if await self._is_over(self._healthy_are_through, within_s):
                return
            if behind and self._behind() == behind:
                text = f"none of them in {within_s:.0f} s although their endpoints are well: {behind}"
                self.checks.broken("starved", text)
                return
            self._all_well = True
            for endpoint in self.endpoints.by_origin.values():
                endpoint.mood = "well"
        within_s = DRAINED_WITHIN_S + self.scenario.asked_for_s()
        if await self._is_over(self._is_drained, within_s):
            return
        if not self._is_drained():
            self.checks.broken("stuck", f"{within_s:.0f} s after the last fault: {self._left()}")
            return
        await self._pass(3.0)
        if self.checks.violation is None:
            self._judge()

    def _ease(self) -> None:
        """Nothing is slow any more, and one worker and one coordinator stay: what was to be seen was seen, the rest
        only takes time."""
        for endpoint in self.endpoints.by_origin.values():
            endpoint.latency_s = min(endpoint.latency_s, 0.01)
            for nature in endpoint.natures.values():
                nature.refusals = 0
        for config in self.configs.values():
            for pool in config["processingPools"]:
                pool["rateLimitPerMinute"] = None
        self._reconfigured()
        for role in ("worker", "coordinator"):
            for name in self.fleet.running(role)[1:]:
                self.fleet.end(name, again_after_s=None)
        self.note("world", "eases")

    async def _pass(self, seconds: float) -> None:
        """Let that much time pass, or less if something goes wrong."""
        until_s = self.loop.now_s + seconds
        while self.loop.now_s < until_s and self.checks.violation is None:
            await asyncio.sleep(min(LOOK_S, until_s - self.loop.now_s))
            self._look()

    async def _is_over(self, done: Callable[[], bool], within_s: float) -> bool:
        """Wait until it is done or the time is up. Returns whether something is wrong."""
        until_s = self.loop.now_s + within_s
        while self.loop.now_s < until_s and self.checks.violation is None and not done():
            await asyncio.sleep(LOOK_S)
        return self.checks.violation is not None

    def _look(self) -> None:
        may_be_late = self.scenario.families & {"redis", "weather"}
        patience_s = self.scenario.ttl_ms / 1000 + (faults.LATEST_S if may_be_late else 2.0)
        processes = [self.fleet.process(name) for name in self.fleet.running()]
        self.checks.on_look(
            [one for one in processes if one.is_stopped and self.loop.now_s - one.stopped_s > patience_s]
        )

    def _judge(self) -> None:
        if lost := self.checks.lost():
            self.checks.broken("lost", ", ".join(lost[:20]))
        if left := self.checks.leftovers():
            self.checks.broken("leftovers", ", ".join(left[:20]))

    def _on_end_of_ours(self, task: asyncio.Task[Any]) -> None:
        if (error := task.exception()) is not None:
            self.checks.broken("harness", f"{type(error).__name__}: {error}")

    # Where it stands ------------------------------------------------------------------------------------

    def _all_sent(self) -> bool:
        return self.sent == len(self.scenario.messages)

    def _is_drained(self) -> bool:
        if not self._all_sent() or any(broker.left for broker in self.brokers.values()):
            return False
        waiting = ("entries", "leases", "outboxes", "settled", "bodies")
        keys = self.redis.store.all_keys()
        if any(key.endswith(f"}}:{name}") for key in keys for name in waiting):
            return False
        if any(self.checks.is_tracked(queue.name) for queue in self.scenario.queues):
            return False
        return not self.checks.lost()

    def _healthy_are_through(self) -> bool:
        return self._all_sent() and not self._behind()

    def _behind(self) -> list[str]:
        lost, sure = set(self.checks.lost()), self.scenario.sure_to_go_on
        return [message.id for message in self.scenario.messages if message.id in lost and message.group in sure]

    def _left(self) -> str:
        at_sources = {name: broker.left for name, broker in self.brokers.items() if broker.left}
        keys = [key for key in self.redis.store.all_keys() if not key.startswith("{fleet}")]
        return f"sent {self.sent}, undelivered {self.checks.lost()[:10]}, at sources {at_sources}, in Redis {keys[:30]}"

    @contextlib.contextmanager
    def _logs(self) -> Iterator[None]:
        """The fleet logs nothing but why a process ends, unless there is a trace to hold the rest."""
        logger, level = logging.getLogger("fleet"), logging.getLogger("fleet").level
        handler = _TraceHandler(self) if self._trace is not None else None
        logger.propagate, was = False, logger.propagate
        logger.setLevel(logging.INFO if handler is not None else logging.ERROR)
        if handler is not None:
            logger.addHandler(handler)
        try:
            yield
        finally:
            logger.propagate = was
            logger.setLevel(level)
            if handler is not None:
                logger.removeHandler(handler)


_DULL = frozenset({"beat", "tally", "TIME", "INFO", "HGET"})


class _TraceHandler(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        world = self._world
        if world._trace is not None:
            world._trace(
                f"{world.loop.now_s:9.4f} {world.loop.process!s:<13} LOG {record.levelname} {record.getMessage()}"
            )
