"""One Redis connection pool per process, for a single server or a Cluster, errors translated at this edge."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import hiredis
from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from fleet.errors import StateError, StateFull, StateUnavailable

Client = Any
"""A `redis.asyncio` client of either kind. redis-py types the two apart, and their commands loosely."""


class _Packed(AbstractConnection):
    """Packs commands in C. redis-py's own way costs a fifth of a worker's time: our calls have a thousand arguments."""

    def pack_command(self, *args: Any) -> list[bytes]:
        # redis-py names some commands by two words, as in CONFIG GET.
        return [hiredis.pack_command((*args[0].split(), *args[1:]) if " " in args[0] else args)]


class _TcpConnection(_Packed, Connection):
    pass


class _TlsConnection(_Packed, SSLConnection):
    pass


class _UnixConnection(_Packed, UnixDomainSocketConnection):
    pass


_CONNECTIONS: dict[type, type] = {
    Connection: _TcpConnection,
    SSLConnection: _TlsConnection,
    UnixDomainSocketConnection: _UnixConnection,
}
_READ_BYTES = 256 * 1024
_TIMEOUT_S = 5.0


def _options(timeout_s: float) -> dict[str, Any]:
    # No retries below us: whether a call may be repeated is known only where it is made.
    return {
        "decode_responses": True,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "socket_read_size": _READ_BYTES,
        "retry": Retry(NoBackoff(), 0),
    }


async def connect(url: str, *, timeout_s: float = _TIMEOUT_S) -> Client:
    """A client for `redis://`, `rediss://` or `unix://`; a Cluster is recognised by asking."""
    client = _client(url, timeout_s)
    with translated(url):
        try:
            info = await client.info("server")
            if info.get("redis_mode") != "cluster":
                _check_version(str(info.get("redis_version", "0")))
                return client
        except BaseException as error:
            await client.aclose()
            if _timed_out(error):
                raise StateUnavailable(f"Redis at {safe_url(url)} does not answer within {timeout_s:g} s") from error
            raise
    await client.aclose()
    options = _options(timeout_s)
    del options["retry"]
    cluster = RedisCluster.from_url(url, **options)
    with translated(url):
        await cluster.initialize()
    return cluster


async def subscribe_connection(client: Client, url: str) -> Redis:
    """A plain connection for SUBSCRIBE: in a Cluster any node carries every channel."""
    if not isinstance(client, RedisCluster):
        return client  # type: ignore[no-any-return]
    # Any node but always the same one: should it be the one that is away, nobody would be woken.
    node = random.choice(client.get_nodes())
    plain = _client(url, _TIMEOUT_S)
    plain.connection_pool.connection_kwargs.update(host=node.host, port=node.port)
    return plain


def check_url(url: str) -> None:
    """StateUnavailable for what can be no address of a Redis; nobody is asked."""
    _client(url, _TIMEOUT_S)


def _client(url: str, timeout_s: float) -> Redis:
    try:
        client = Redis.from_url(url, **_options(timeout_s))
        pool = client.connection_pool
        pool.connection_class = _CONNECTIONS[pool.connection_class]
        # An option that redis-py does not know shows only when a connection is made of it.
        pool.make_connection()  # type: ignore[no-untyped-call]
    except (ValueError, TypeError) as error:
        raise StateUnavailable(f"not a Redis URL: {safe_url(url)}") from error
    return client


@contextlib.contextmanager
def translated(url: str = "") -> Iterator[None]:
    """Turn what redis-py raises into our own errors."""
    where = f" at {safe_url(url)}" if url else ""
    try:
        yield
    except (exceptions.AuthenticationError, exceptions.NoPermissionError) as error:
        raise StateUnavailable(f"Redis{where} refuses us: {error}") from error
    except exceptions.OutOfMemoryError as error:
        raise StateFull(f"Redis{where} has no memory left") from error
    except (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.ClusterError, OSError) as error:
        raise StateUnavailable(f"Redis{where} cannot be reached: {error}") from error
    except exceptions.RedisClusterException as error:
        # No RedisError for redis-py: no node answers, or the slots have no owner just now.
        raise StateUnavailable(f"Redis{where} cannot be reached: {error}") from error
    except exceptions.ResponseError as error:
        text = str(error)
        if "OOM command not allowed" in text:
            raise StateFull(f"Redis{where} has no memory left") from error
        if text.startswith(("LOADING", "MASTERDOWN", "READONLY", "CLUSTERDOWN", "TRYAGAIN")):
            raise StateUnavailable(f"Redis{where} is not ready: {text}") from error
        if "WRONGPASS" in text or "NOAUTH" in text or "invalid username-password" in text:
            raise StateUnavailable(f"Redis{where} refuses us: {text}") from error
        raise StateError(f"Redis{where} answered: {text}") from error


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    client = await connect(url)
    try:
        yield client
    finally:
        await client.aclose()


def _timed_out(error: BaseException | None) -> bool:
    # Nobody refused us: it is frozen or starved. Of a time-out in its greeting redis-py makes another error.
    while isinstance(error, exceptions.RedisError):
        if isinstance(error, exceptions.TimeoutError):
            return True
        error = error.__cause__ or error.__context__
    return False


def safe_url(url: str) -> str:
    """The URL without its user and password, also where they stand among its options."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def _check_version(version: str) -> None:
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    if numbers < (6, 2):
        raise StateUnavailable(f"Redis is {version}, 6.2 or later is needed")
