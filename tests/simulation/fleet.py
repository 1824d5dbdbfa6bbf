"""The processes of the fleet: the real mains, each in a simulated process, started again as systemd does."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import coordinator.main
import coordinator.syncer.fetch
import coordinator.syncer.main
import fleet.sources.open as opening
import fleet.sources.own.source
import fleet.state.connect
import workers.main
from fleet.config.settings import ConfigSettings, HttpSettings, LeaseSettings, RedisSettings, Settings, WorkerSettings
from fleet.errors import InvalidConfig, StateUnavailable
from fleet.sources.adapter import Adapter, Asked
from fleet.sources.base import Surroundings
from fleet.sources.open import _load
from tests.simulation.endpoint import Endpoints, SimulatedHttp
from tests.simulation.loop import Loop, Process
from tests.simulation.network import Network
from tests.simulation.redis import URL, RedisHost, connecting
from tests.simulation.scenario import Scenario
from tests.simulation.sources.activemq import ActiveMqSource
from tests.simulation.sources.broker import Broker, ModelSource
from tests.simulation.sources.jetstream import JetStreamSource
from tests.simulation.sources.sqlite import in_line
from tests.simulation.sources.sqs import FifoSource, StandardSource

CONFIG_URL = "http://configuration/"
RESTART_S = 2.0

_SOURCES: dict[str, type[ModelSource]] = {
    "fifo": FifoSource,
    "standard": StandardSource,
    "jetstream": JetStreamSource,
    "activemq": ActiveMqSource,
}


class Fleet:
    def __init__(
        self,
        *,
        scenario: Scenario,
        loop: Loop,
        network: Network,
        redis: RedisHost,
        endpoints: Endpoints,
        brokers: dict[str, Broker],
        config_of: Callable[[str], bytes],
        on_crash: Callable[[Process, BaseException | None, str], None],
    ) -> None:
        self._scenario = scenario
        self._loop = loop
        self._network = network
        self._redis = redis
        self._endpoints = endpoints
        self._brokers = brokers
        self._config_of = config_of
        self._on_crash = on_crash
        self._numbers = 100
        self._processes: dict[str, Process] = {}
        self._not_again: set[str] = set()
        self.is_over = False

    # Which there are --------------------------------------------------------------------------------

    def names(self, role: str = "") -> list[str]:
        return [name for name in self._processes if name.startswith(role)]

    def process(self, name: str) -> Process:
        return self._processes[name]

    def running(self, role: str = "") -> list[str]:
        return [name for name in self.names(role) if not self._processes[name].is_dead]

    def begin(self) -> None:
        for name in (
            "syncer1",
            *(f"coordinator{i + 1}" for i in range(self._scenario.coordinators)),
            *(f"worker{i + 1}" for i in range(self._scenario.workers)),
        ):
            self.start(name)

    def start(self, name: str, config: str = "main") -> None:
        if self.is_over or (name in self._processes and not self._processes[name].is_dead):
            return
        self._numbers += 1
        before = self._processes.get(name)
        process = self._processes[name] = Process(name, self._numbers)
        process.wall_offset_ms = before.wall_offset_ms if before is not None else 0.0
        self._loop.start(process, self._live(process, config))

    def kill(self, name: str, *, again_after_s: float | None) -> None:
        process = self._processes[name]
        if process.is_dead:
            return
        process.is_stopped = False
        self._loop.kill(process)
        if again_after_s is not None:
            self._loop.later(again_after_s, self.start, name)

    def end(self, name: str, *, again_after_s: float | None) -> None:
        """SIGTERM, and SIGKILL after half a minute, as a supervisor does."""
        process = self._processes[name]
        if process.is_dead:
            return
        if again_after_s is None:
            self._not_again.add(name)
        self._loop.terminate(process)
        self._loop.later(30.0, self._kill_if_there, process, name, again_after_s)

    def _kill_if_there(self, process: Process, name: str, again_after_s: float | None) -> None:
        if not process.is_dead:
            self.kill(name, again_after_s=again_after_s)

    async def _live(self, process: Process, config: str) -> None:
        try:
            code = await self._main(process.name, config)
            error: BaseException | None = None
        except Exception as found:
            code, error = 1, found
        process.is_dead = True
        for tell in process.on_death:
            tell()
        # A process that never reached Redis has not begun; its supervisor tries again.
        never_began = isinstance(error, StateUnavailable) and not process.has_connected
        if code and not never_began:
            self._on_crash(process, error, "")
        if process.name not in self._not_again and not self.is_over:
            self._loop.later(RESTART_S, self.start, process.name, config)

    def _main(self, name: str, config: str) -> Coroutine[Any, Any, int]:
        settings = Settings(
            redis=RedisSettings(url=URL),
            lease=LeaseSettings(ttl_ms=self._scenario.ttl_ms),
            http=HttpSettings(timeout_ms=self._scenario.timeout_ms),
            worker=WorkerSettings(max_in_flight=self._scenario.max_in_flight, stop_within_s=10.0),
            config=ConfigSettings(source=f"{CONFIG_URL}{config}", sync_interval_s=3.0),
        )
        if name.startswith("worker"):
            return workers.main.serve(settings, ["*"])
        if name.startswith("coordinator"):
            return coordinator.main.serve(settings)
        return coordinator.syncer.main.serve(settings, None, None)

    # What they find where the world would be ----------------------------------------------------------

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        connect = connecting(self._loop, self._network, self._redis)
        around = opening._around
        opening.surround(Surroundings(redis_url=URL))
        crashes = _Crashes(self._loop, self._on_crash)
        logger = logging.getLogger("fleet")
        logger.addHandler(crashes)
        try:
            with (
                mock.patch.object(fleet.state.connect, "connect", connect),
                mock.patch.object(fleet.sources.own.source, "connect", connect),
                mock.patch.object(coordinator.main, "tame_collector", _nothing),
                mock.patch.object(workers.main, "tame_collector", _nothing),
                mock.patch.object(workers.main, "HttpClient", lambda **_: SimulatedHttp(self._endpoints)),
                mock.patch.object(coordinator.syncer.fetch, "_fetch_url", self._fetch),
                mock.patch.object(opening, "_load", self._load),
                in_line(),
            ):
                yield
        finally:
            logger.removeHandler(crashes)
            opening.surround(around)

    def _fetch(self, url: str, _timeout_s: float) -> bytes:
        body = self._config_of(url.removeprefix(CONFIG_URL))
        if not body:
            raise InvalidConfig(f"{url}: cannot be reached")
        return body

    def _load(self, kind: str) -> Adapter[Any]:
        adapter = _load(kind)
        return replace(adapter, source=self._model_source) if adapter.kept_in == "broker" else adapter

    def _model_source(self, _address: object, asked: Asked) -> ModelSource:
        broker = self._brokers[asked.name]
        kind = _SOURCES[asked.name.rstrip("0123456789")]
        return kind(
            name=asked.name, broker=broker, network=self._network, loop=self._loop, visibility_ms=asked.visibility_ms
        )


class _Crashes(logging.Handler):
    """Hears why a process ends: the process says so in its log."""

    def __init__(self, loop: Loop, on_crash: Callable[[Process, BaseException | None, str], None]) -> None:
        super().__init__(logging.ERROR)
        self._loop = loop
        self._on_crash = on_crash

    def emit(self, record: logging.LogRecord) -> None:
        process = self._loop.process
        if process is not None and record.exc_info and record.exc_info[1] is not None:
            self._on_crash(process, record.exc_info[1], record.getMessage())


def _nothing() -> None:
    return
