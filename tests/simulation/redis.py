"""Redis as the processes of the fleet meet it: a host on the network, clients, and subscriptions that may break."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from redis import exceptions

from tests.simulation.clock import BEGAN_S
from tests.simulation.commands import Commands, Pipeline, Reader, _as_it_is
from tests.simulation.loop import Loop, Process
from tests.simulation.network import Host, Network
from tests.simulation.server import Server
from tests.simulation.store import error_of

URL = "redis://simulated:6379/0"


class RedisHost(Host):
    """A server with a clock of its own, which may be made to refuse."""

    def __init__(self, loop: Loop, network: Network) -> None:
        super().__init__("redis", timeout_s=5.0)
        self._loop = loop
        self._network = network
        self.server = Server()
        self.store = self.server.store
        self.clock_offset_ms = 0.0
        self.refuses = ""
        """What it answers to every command, or to those that write."""
        self.subscriptions: list[Subscription] = []

    def refusal(self) -> Exception:
        return exceptions.ConnectionError("Error 111 connecting to simulated:6379. Connection refused.")

    def silence(self) -> Exception:
        return exceptions.TimeoutError("Timeout reading from simulated:6379")

    def now_ms(self) -> float:
        return (BEGAN_S + self._loop.now_s) * 1000 + self.clock_offset_ms

    def do(self, command: tuple[Any, ...]) -> Any:
        if self.refuses and not (self.refuses.startswith("READONLY") and command[0] in _READS):
            raise error_of(self.refuses)
        self.store.set_time_us(self.now_ms() * 1000)
        try:
            return self.server.do(command)
        finally:
            if self.store.published:
                self._publish()

    def do_many(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        return [self.do(command) for command in commands]

    def _publish(self) -> None:
        for channel, message in self.store.take_published():
            for subscription in self.subscriptions:
                if channel in subscription.channels:
                    subscription.send({"type": "message", "channel": channel, "data": message})

    def break_subscriptions(self, of: str = "") -> None:
        for subscription in list(self.subscriptions):
            if of in ("", subscription.owner):
                subscription.break_off()

    def go_away(self) -> None:
        self.is_away = True
        self.break_subscriptions()

    def come_back(self) -> None:
        self.is_away = False


_READS = frozenset(
    {
        "HGET",
        "HMGET",
        "HGETALL",
        "HKEYS",
        "HLEN",
        "HSCAN",
        "LLEN",
        "LRANGE",
        "SMEMBERS",
        "SSCAN",
        "TIME",
        "INFO",
        "ZCARD",
    }
)


class _NoPool:
    """In place of redis-py's connection pool: here each call has its own connection."""

    def __init__(self) -> None:
        self.connection_kwargs: dict[str, Any] = {"host": "simulated", "port": 6379}


class _End:
    """A process's end of what it has with Redis."""

    def __init__(self, network: Network, host: RedisHost, loop: Loop) -> None:
        self._network = network
        self._host = host
        self._loop = loop
        self._process = loop.process
        self.connection_pool = _NoPool()


class SimulatedClient(_End, Commands):
    """What `connect` returns to a process."""

    def _do(self, reader: Reader, *command: Any) -> Any:
        host = self._host
        future = self._network.call(self._process, host, _name(command), lambda: host.do(command))
        return future if reader is _as_it_is else _read(reader, future)

    def pipeline(self, transaction: bool = False) -> Pipeline:
        return Pipeline(self._send_many)

    async def _send_many(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        answers: list[Any] = await self._network.call(
            self._process, self._host, "PIPELINE", lambda: self._host.do_many(commands)
        )
        return answers

    def pubsub(self) -> Subscription:
        return Subscription(self._network, self._host, self._loop)

    async def __aenter__(self) -> SimulatedClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        return


async def _read(reader: Reader, future: asyncio.Future[Any]) -> Any:
    return reader(await future)


def _name(command: tuple[Any, ...]) -> str:
    return _SCRIPT_NAMES.get(command[1], "EVALSHA") if command[0] == "EVALSHA" else str(command[0])


_SCRIPT_NAMES: dict[str, str] = {}


def know_scripts(names: dict[str, str]) -> None:
    """For the trace: which digest is which script."""
    _SCRIPT_NAMES.update(names)


class Subscription(_End):
    """One SUBSCRIBE connection."""

    def __init__(self, network: Network, host: RedisHost, loop: Loop) -> None:
        super().__init__(network, host, loop)
        self.owner = self._process.name if self._process is not None else ""
        self.channels: tuple[str, ...] = ()
        self._came: deque[dict[str, Any]] = deque()
        self._is_broken = False
        self.is_deaf = False
        self._last_s = 0.0
        self._waiter: asyncio.Future[None] | None = None

    async def subscribe(self, *channels: str) -> None:
        await self._network.call(self._process, self._host, "SUBSCRIBE", lambda: self._register(channels))

    def _register(self, channels: tuple[str, ...]) -> None:
        if self not in self._host.subscriptions:
            self._host.subscriptions.append(self)
            if self._process is not None:
                self._process.on_death.append(self._leave)
        self.channels = tuple(dict.fromkeys((*self.channels, *channels)))
        for channel in channels:
            self.send({"type": "subscribe", "channel": channel, "data": 1})

    def send(self, message: dict[str, Any]) -> None:
        """In order: a connection never swaps two messages."""
        if not self.is_deaf:
            self._last_s = max(self._last_s, self._loop.now_s + self._network.delay_s())
            self._loop.call_at(self._last_s, self._arrive, message, context=self._loop.outside)

    def _arrive(self, message: dict[str, Any]) -> None:
        if not self._is_broken and not self.is_deaf:
            self._came.append(message)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def break_off(self) -> None:
        self._leave()
        self._is_broken = True
        self._wake()

    def _leave(self) -> None:
        if self in self._host.subscriptions:
            self._host.subscriptions.remove(self)

    async def get_message(self, timeout: float | None = None, **_options: Any) -> dict[str, Any] | None:
        if not self._came and not self._is_broken:
            self._waiter = self._loop.create_future()
            timer = self._loop.call_later(timeout, self._wake) if timeout is not None else None
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        if self._came:
            return self._came.popleft()
        if self._is_broken:
            raise exceptions.ConnectionError("Connection closed by server.")
        return None

    async def ping(self, message: str | None = None) -> bool:
        if self._is_broken or self._host.is_away:
            raise exceptions.ConnectionError("Connection closed by server.")
        if not self._host.is_frozen:
            self.send({"type": "pong", "channel": None, "data": message or ""})
        return True

    async def unsubscribe(self, *channels: str) -> None:
        await self._network.call(self._process, self._host, "UNSUBSCRIBE", lambda: self._drop(channels))

    def _drop(self, channels: tuple[str, ...]) -> None:
        self.channels = tuple(channel for channel in self.channels if channel not in channels)

    async def aclose(self) -> None:
        self._leave()
        self._is_broken = True
        self._wake()


Connect = Callable[..., Any]


def connecting(loop: Loop, network: Network, host: RedisHost) -> Connect:
    """In place of `fleet.state.connect.connect`."""

    async def connect(url: str, **_options: Any) -> SimulatedClient:
        from fleet.errors import StateUnavailable

        process: Process | None = loop.process
        try:
            await network.call(process, host, "CONNECT", lambda: None)
        except exceptions.RedisError as error:
            raise StateUnavailable(f"Redis cannot be reached: {error}") from error
        if process is not None:
            process.has_connected = True
        return SimulatedClient(network, host, loop)

    return connect
