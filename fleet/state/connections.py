"""The connections to one server: so many at most, and all made anew once one shows that it leads to the wrong server.

After a failover behind a name, a virtual address or a proxy the old connections still lead to the demoted server, or
to none. So the first connection that meets a refusal or a silence tells us here, whatever call used it. None that was
made before is used again, and each new one resolves the name, or asks the sentinels, once more.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable
from typing import Any

import hiredis
from redis import exceptions
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    ConnectionPool,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.maint_notifications import MaintNotificationsConfig

from fleet.state.refusals import DEMOTED, Parser

MOST = 32
"""From one process to one server. The server does one thing at a time: more calls would wait there instead of here."""
TIMEOUT_S = 5.0
READ_BYTES = 256 * 1024
KEEPALIVE = {socket.TCP_KEEPIDLE: 15, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}
"""A connection from which no packet comes back for half a minute is closed, even if no call waits for an answer."""
RENEW_EVERY_S = 0.25
"""If a server goes on refusing, we do not connect to it again at every call."""

_LOST = (*DEMOTED, exceptions.ConnectionError, exceptions.TimeoutError)


class Watched(AbstractConnection):
    """Packs commands in C, and tells its pool what its server says of itself.

    redis-py's own way of packing costs a fifth of a worker's time: our calls have a thousand arguments.
    """

    connections: Connections | None = None
    round = 0
    """The round of its pool in which it was made. One of an older round is closed, not used."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"parser_class": Parser, **options})

    def pack_command(self, *args: Any) -> list[bytes]:
        # redis-py names some commands with two words, as in CONFIG GET.
        return [hiredis.pack_command((*args[0].split(), *args[1:]) if " " in args[0] else args)]

    async def _connect(self) -> None:
        if self.connections is not None:
            self.round = self.connections.round
            address = await self.connections.address()
            if address is not None:
                self.lead_to(*address)
        await super()._connect()  # type: ignore[safe-super, no-untyped-call]

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*args, **options)
        except _LOST as error:
            if self.connections is not None:
                # Redis does one thing at a time: if one call waits in vain, all do.
                self.connections.renew(self, at_once=isinstance(error, exceptions.TimeoutError))
            raise

    def abort(self) -> None:
        """The call that waits on it for an answer is told that there will be none."""
        if self._writer is not None:
            self._writer.transport.abort()

    async def _send_packed_command(self, command: Iterable[bytes]) -> None:
        # An aborted one still has its transport, and what uvloop's transport raises then is not a connection error.
        if self._writer is None or self._writer.transport.is_closing():
            raise ConnectionResetError(errno.ECONNRESET, "closed before the call was written")
        await super()._send_packed_command(command)

    def lead_to(self, host: str, port: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Close it at once, even while a call reads from it: it connects again when it is used again."""
        self._parser.on_disconnect()  # type: ignore[no-untyped-call]
        self._close()  # type: ignore[no-untyped-call]


class TcpConnection(Watched, Connection):
    def lead_to(self, host: str, port: int) -> None:
        self.host, self.port = host, port


class TlsConnection(Watched, SSLConnection):
    def lead_to(self, host: str, port: int) -> None:
        self.host, self.port = host, port


class UnixConnection(Watched, UnixDomainSocketConnection):
    pass


WATCHED: dict[type, type[Watched]] = {
    Connection: TcpConnection,
    SSLConnection: TlsConnection,
    UnixDomainSocketConnection: UnixConnection,
}


def options(timeout_s: float) -> dict[str, Any]:
    """The options of every connection that we make."""
    return {
        "decode_responses": True,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "socket_read_size": READ_BYTES,
        # No retries below us: whether a call may be repeated is known only where it is made.
        "retry": Retry(NoBackoff(), 0),
        # With these, redis-py would use a connection that the other end has closed.
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
    }


def keepalive() -> dict[str, Any]:
    """The options of every connection by TCP."""
    return {"socket_keepalive": True, "socket_keepalive_options": KEEPALIVE}


class Connections(ConnectionPool):
    """A call that finds none free waits for one, in the order of arrival, for as long as an answer may take."""

    def __init__(self, *, most: int = MOST, wait_s: float = TIMEOUT_S, **options: Any) -> None:
        super().__init__(max_connections=most, **options)
        self.connection_class = WATCHED[self.connection_class]
        if self.connection_class is not UnixConnection:
            self.connection_kwargs.update(keepalive())
        self.round = 0
        self.on_renewed: set[Callable[[], None]] = set()
        """Called when a server that is listened to may be the wrong one. Connections in use close after their call."""
        self._wait_s = wait_s
        self._places = asyncio.Semaphore(most)
        self._renewed_s = -RENEW_EVERY_S
        self._due: asyncio.TimerHandle | None = None
        self._aborts = False

    def make_connection(self) -> Watched:
        connection: Watched = super().make_connection()  # type: ignore[no-untyped-call]
        connection.connections = self
        return connection

    async def get_connection(self, *_names: Any, **_options: Any) -> Watched:
        await self._place()
        try:
            connection: Watched = self.get_available_connection()  # type: ignore[no-untyped-call]
        except BaseException:
            self._places.release()
            raise
        try:
            if connection.round != self.round:
                connection.close()
            await self.ensure_connection(connection)
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def address(self) -> tuple[str, int] | None:
        """Where a new connection leads; None for where its options say."""
        return None

    async def _place(self) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout(self._wait_s):
                await self._places.acquire()
        except TimeoutError:
            raise exceptions.TimeoutError(f"all {self.max_connections} connections wait for answers") from None

    async def release(self, connection: AbstractConnection) -> None:
        assert isinstance(connection, Watched)
        if connection.round != self.round:
            connection.close()
        self._in_use_connections.remove(connection)
        self._available_connections.append(connection)
        self._places.release()

    async def aclose(self) -> None:
        if self._due is not None:
            self._due.cancel()
        await super().aclose()

    def renew(self, found: Watched | None = None, *, at_once: bool = False) -> None:
        """Never again use a connection that was made before now. `found`: the one that showed why.

        `at_once`: calls that wait for an answer are ended too, instead of each timing out by itself.
        """
        if found is not None and found.round != self.round:
            return
        self._aborts = self._aborts or at_once
        loop = asyncio.get_running_loop()
        wait_s = self._renewed_s + RENEW_EVERY_S - loop.time()
        if wait_s <= 0:
            self._renew()
        elif self._due is None:
            self._due = loop.call_later(wait_s, self._renew)

    def _renew(self) -> None:
        self._due = None
        self._renewed_s = asyncio.get_running_loop().time()
        self.round += 1
        for connection in self._available_connections:
            assert isinstance(connection, Watched)
            connection.close()
        if self._aborts:
            self._aborts = False
            for connection in tuple(self._in_use_connections):
                assert isinstance(connection, Watched)
                connection.abort()
        for tell in tuple(self.on_renewed):
            tell()


def renew(pool: ConnectionPool) -> None:
    """Renew the connections of a client. They may not be ours, as in tests that need no server."""
    if isinstance(pool, Connections):
        pool.renew()
