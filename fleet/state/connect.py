"""The way to Redis, a single server or a Cluster: a pool of connections per process, errors translated here."""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from fleet.errors import StateError, StateFull, StateUnavailable
from fleet.state.cluster import Cluster
from fleet.state.connections import TIMEOUT_S, Connections, options
from fleet.state.hear import Line
from fleet.state.refusals import PASSING, refusal_of
from fleet.state.sentinel import LedConnections, SentinelsRefuse, is_sentinel
from fleet.state.url import check_path, safe_url, why_not

_PLACE = re.compile(r" script: [0-9a-f]{40}, on @user_script:\d+\.$")
"""Where in a script an error was met. It does not say why, and makes one error look like many."""
_LATE_S = 0.5
Client = Any
"""A `redis.asyncio` client of either kind. redis-py gives the two separate types, and types their commands loosely."""


class SilentAtStart(StateUnavailable):
    """Nobody answered when we first asked."""


class _Client(Redis):
    def pubsub(self, **options: Any) -> PubSub:
        return Line(self.connection_pool, **options)


async def connect(url: str, *, timeout_s: float = TIMEOUT_S) -> Client:
    """A client for `redis://`, `rediss://`, `unix://` or `sentinel://`; a Cluster is recognised by asking."""
    began_s = time.monotonic()
    try:
        return await _connect(url, timeout_s)
    except SilentAtStart:
        # Its timer rang late: we were stopped ourselves, and the answer may have come meanwhile.
        if time.monotonic() - began_s < timeout_s + _LATE_S:
            raise
    return await _connect(url, timeout_s)


async def _connect(url: str, timeout_s: float) -> Client:
    client = _client(url, timeout_s)
    with translated(url):
        try:
            info = await client.info("server")
            if info.get("redis_mode") == "sentinel":
                raise StateUnavailable(f"{safe_url(url)} is a Sentinel, use sentinel://HOST:PORT/MASTER")
            if info.get("redis_mode") != "cluster":
                _check_version(str(info.get("redis_version", "0")))
                return client
        except BaseException as error:
            await client.aclose()
            if _timed_out(error):
                raise SilentAtStart(f"Redis at {safe_url(url)} does not answer within {timeout_s:g} s") from error
            raise
    await client.aclose()
    cluster = Cluster.from_url(url, wait_s=timeout_s, **options(timeout_s))
    with translated(url):
        await cluster.initialize()
    return cluster


async def subscribe_connection(client: Client, url: str, *, but: str = "") -> Redis:
    """A plain connection for SUBSCRIBE: in a Cluster any node carries every channel. `but`: a node to avoid."""
    if not isinstance(client, Cluster):
        return client  # type: ignore[no-any-return]
    # A random node, not always the same one: if that one were away, no process would be woken.
    nodes = client.get_nodes()
    node = random.choice([node for node in nodes if node.name != but] or nodes)
    plain = _client(url, TIMEOUT_S)
    plain.connection_pool.connection_kwargs.update(host=node.host, port=node.port)
    return plain


def check_url(url: str) -> None:
    """Raise StateUnavailable for what cannot be the address of a Redis. No server is asked."""
    _client(url, TIMEOUT_S)


def _client(url: str, timeout_s: float) -> Redis:
    try:
        check_path(url)
        kind = LedConnections if is_sentinel(url) else Connections.from_url
        pool = kind(url, wait_s=timeout_s, **options(timeout_s))
        # An option that redis-py does not know shows only when a connection is made with it.
        pool.make_connection()
    except (ValueError, TypeError) as error:
        why = why_not(url, error)
        raise StateUnavailable(f"not a Redis URL: {safe_url(url)}{why and f' ({why})'}") from error
    return _Client.from_pool(pool)


@contextlib.contextmanager
def translated(url: str = "") -> Iterator[None]:
    """Turn what redis-py raises into our own errors."""
    where = f" at {safe_url(url)}" if url else ""
    try:
        yield
    except SentinelsRefuse as error:
        raise StateUnavailable(f"Redis{where} cannot be found: {error}") from error
    except (exceptions.AuthenticationError, exceptions.NoPermissionError) as error:
        raise StateUnavailable(f"Redis{where} {refusal_of(error)}") from error
    except exceptions.OutOfMemoryError as error:
        raise StateFull(f"Redis{where} has no memory left") from error
    except PASSING as error:
        raise StateUnavailable(f"Redis{where} is not ready: {said(error)}") from error
    except (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.ClusterError, OSError) as error:
        raise StateUnavailable(f"Redis{where} cannot be reached: {error}") from error
    except (exceptions.RedisClusterException, exceptions.InvalidResponse) as error:
        # redis-py does not make the first a RedisError: no node answers, or the slots have no owner just now.
        raise StateUnavailable(f"Redis{where} cannot be reached: {error}") from error
    except exceptions.ResponseError as error:
        text = str(error)
        if "OOM command not allowed" in text:
            raise StateFull(f"Redis{where} has no memory left") from error
        if "WRONGPASS" in text or "NOAUTH" in text or "invalid username-password" in text:
            raise StateUnavailable(f"Redis{where} {refusal_of(error)}") from error
        raise StateError(f"Redis{where} answered: {text}") from error


def said(error: exceptions.RedisError) -> str:
    """The error's words, with its code."""
    # redis-py takes the codes that it knows out of the text.
    code, text = error.status_code or "", _PLACE.sub("", str(error))
    return text if code in text else f"{code} {text}"


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    """A client to use. Errors that end its use say where Redis is, as errors of connecting do."""
    client = await connect(url)
    try:
        yield client
    except (StateUnavailable, StateFull) as error:
        text = str(error)
        if not text.startswith("Redis ") or text.startswith("Redis at "):
            raise
        raise type(error)(f"Redis at {safe_url(url)} {text.removeprefix('Redis ')}") from error
    finally:
        await client.aclose()


def _timed_out(error: BaseException | None) -> bool:
    # It did not refuse us: it is frozen or starved. redis-py turns a time-out in its greeting into another error.
    while isinstance(error, exceptions.RedisError):
        if isinstance(error, exceptions.TimeoutError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _check_version(version: str) -> None:
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    if numbers < (6, 2):
        raise StateUnavailable(f"Redis is {version}, 6.2 or later is needed")
