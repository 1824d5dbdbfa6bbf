"""The master that Redis Sentinels name: `sentinel://[user:password@]host:port,host:port/MASTER/DB`.

Each new connection asks all of them, so that its address is as new as it is. If answers differ, the one of the latest
failover counts: a sentinel that was cut off goes on naming the old master. We also listen to all of them: a master that
is replaced while it works goes on taking writes for some ten seconds, and those are lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.connection import parse_url

from fleet.state.connections import TIMEOUT_S, Connections, options
from fleet.state.hear import hear
from fleet.state.refusals import refusal_of
from fleet.state.url import SENTINEL_SCHEMES, WrongUrl
from fleet.waiting import cancel

log = logging.getLogger("fleet.redis")

_PORT = 26379
ASK_WITHIN_S = 1.0
"""For all of them together. Once a majority has answered, we do not wait for the others."""
_SWITCHED = "+switch-master"
_AGAIN_S = 1.0
_told: dict[tuple[tuple[str, int], ...], tuple[str, int]] = {}
"""The master that these sentinels named last to this process, however many clients it has."""
_OF_SENTINELS = ("sentinel_username", "sentinel_password")


class SentinelsRefuse(exceptions.AuthenticationError):
    """They answer, but not us."""


@dataclass(frozen=True, slots=True)
class Address:
    """What a `sentinel://` URL says."""

    sentinels: tuple[tuple[str, int], ...]
    master: str
    of_master: dict[str, Any] = field(repr=False)
    of_sentinels: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class View:
    """The master as one sentinel sees it."""

    sentinel: str
    host: str
    port: int
    epoch: int
    """Of the last failover."""
    replicas: int
    """Those that it knows of, including those that are gone."""
    quorum: int
    others: int
    """Sentinels that it knows of."""
    is_down: bool
    alive: int = 0
    """Of the replicas, where that was asked."""


def is_sentinel(url: str) -> bool:
    return url.partition("://")[0].lower() in SENTINEL_SCHEMES


def parse(url: str) -> Address:
    """ValueError for what cannot be one."""
    parts = urlsplit(url)
    user, _, hosts = parts.netloc.rpartition("@")
    master, _, db = parts.path.strip("/").partition("/")
    given = parse_qs(parts.query)
    own = {name: given.pop(name)[0] for name in _OF_SENTINELS if name in given}
    if not master:
        raise WrongUrl("it names no master: its path must be /MASTER or /MASTER/DB")
    if db and not db.isdecimal():
        raise WrongUrl("its database must be a number: its path must be /MASTER or /MASTER/DB")
    scheme = "rediss" if parts.scheme.lower() == "sentinels" else "redis"
    # What stands before the hosts and behind the path means what it means in any Redis URL.
    shared = dict(parse_url(f"{scheme}://_?{urlencode(given, doseq=True)}"))
    shared.pop("host", None)
    of_master = dict(parse_url(f"redis://{user}@_/{db or 0}" if user else f"redis://_/{db or 0}"))
    of_master.pop("host", None)
    of_sentinels = {name.removeprefix("sentinel_"): value for name, value in own.items()}
    not_theirs = {"username", "password", "db"}
    return Address(
        tuple(_host(one) for one in hosts.split(",")),
        unquote(master),
        of_master | shared,
        {name: value for name, value in shared.items() if name not in not_theirs} | of_sentinels,
    )


def _host(text: str) -> tuple[str, int]:
    found = urlsplit(f"//{text}")
    if not found.hostname:
        raise WrongUrl("a sentinel has no host")
    return found.hostname, found.port or _PORT


class Sentinels:
    """All sentinels that a URL names."""

    def __init__(
        self, address: Address, *, timeout_s: float = TIMEOUT_S, on_switched: Callable[[], None] | None = None
    ) -> None:
        """`on_switched`: told when one of them says that another server is the master now."""
        self.address = address
        self._on_switched = on_switched
        self._listening: list[asyncio.Task[None]] = []
        self._clients = {f"{host}:{port}": self._client(host, port, timeout_s) for host, port in address.sentinels}
        self._asking: asyncio.Task[tuple[str, int]] | None = None

    def _client(self, host: str, port: int, timeout_s: float) -> Redis:
        given = {**options(min(timeout_s, ASK_WITHIN_S)), **self.address.of_sentinels, "host": host, "port": port}
        return Redis.from_pool(Connections(most=4, wait_s=ASK_WITHIN_S, **given))

    async def master(self) -> tuple[str, int]:
        """Where it is now. Calls at the same time get the same answer."""
        if not self._listening and self._on_switched is not None:
            self._listening = [asyncio.create_task(self._listen(one)) for one in self._clients.values()]
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def look(self) -> dict[str, View | Exception]:
        """What each of them says, of the replicas too."""
        answers = await asyncio.gather(*map(self._full_view, self._clients), return_exceptions=True)
        found: dict[str, View | Exception] = {}
        for name, answer in zip(self._clients, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, Exception):
                raise answer
            found[name] = answer
        return found

    async def aclose(self) -> None:
        await cancel(task for task in (self._asking, *self._listening) if task is not None)
        for client in self._clients.values():
            await client.aclose()

    async def _listen(self, client: Redis) -> None:
        while True:
            pubsub = client.pubsub()
            try:
                await pubsub.subscribe(_SWITCHED)
                await self._hear(pubsub)
            except (exceptions.RedisError, OSError) as error:
                log.debug("a sentinel is not heard: %s", error)
            finally:
                await pubsub.aclose()  # type: ignore[no-untyped-call]
            await asyncio.sleep(_AGAIN_S)

    async def _hear(self, pubsub: PubSub) -> None:
        def each(message: dict[str, Any]) -> None:
            if message["type"] == "message" and message["data"].startswith(f"{self.address.master} "):
                assert self._on_switched is not None
                self._on_switched()

        await hear(pubsub, each)
        raise exceptions.TimeoutError("it is silent")

    async def _ask(self) -> tuple[str, int]:
        views: list[View] = []
        errors: list[str] = []
        refused = False
        asked = {asyncio.create_task(self._view(name)) for name in self._clients}
        try:
            async with asyncio.timeout(ASK_WITHIN_S):
                while asked and len(views) <= len(self._clients) // 2:
                    done, asked = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        if (error := task.exception()) is None:
                            views.append(task.result())
                        else:
                            errors.append(str(error))
                            refused = refused or isinstance(error, SentinelsRefuse)
        except TimeoutError:
            errors.append("some do not answer")
        finally:
            await cancel(asked)
        if not views:
            text = "; ".join(sorted(set(errors)))
            if refused:
                raise SentinelsRefuse(text)
            text = f"no sentinel names the master {self.address.master}: {text}"
            raise exceptions.ConnectionError(text)
        newest = max(views, key=lambda view: view.epoch)
        return self._tell(newest.host, newest.port)

    def _tell(self, host: str, port: int) -> tuple[str, int]:
        key = ((self.address.master, 0), *self.address.sentinels)
        before, _told[key] = _told.get(key), (host, port)
        if before not in (None, (host, port)):
            log.info("the master of Redis is %s:%d now", host, port)
        return host, port

    async def _view(self, name: str) -> View:
        try:
            return await self._said(name)
        except (exceptions.AuthenticationError, exceptions.NoPermissionError) as error:
            raise SentinelsRefuse(_refusal(error)) from error
        except exceptions.ResponseError as error:
            text = str(error)
            if "unknown command" in text:
                raise exceptions.ConnectionError(f"{name} is not a Sentinel, use redis://") from error
            if "WRONGPASS" in text or "NOAUTH" in text or "invalid username-password" in text:
                raise SentinelsRefuse(_refusal(error)) from error
            raise

    async def _said(self, name: str) -> View:
        ask: Any = self._clients[name]
        # The address first: while a failover is under way its epoch is known before the new master is in the record.
        address = await ask.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", self.address.master)
        said: dict[str, Any] = await ask.sentinel_master(self.address.master, return_responses=True)
        if address is None:
            raise exceptions.ConnectionError("no such master")
        return View(
            sentinel=name,
            host=str(address[0]),
            port=int(address[1]),
            epoch=int(said["config-epoch"]),
            replicas=int(said["num-slaves"]),
            quorum=int(said["quorum"]),
            others=int(said["num-other-sentinels"]),
            is_down=bool(said["is_odown"] or said["is_sdown"]),
        )

    async def _full_view(self, name: str) -> View:
        view, ask = await self._view(name), self._clients[name]
        replicas: list[dict[str, Any]] = await ask.sentinel_slaves(self.address.master)
        gone = ("is_sdown", "is_odown", "is_disconnected")
        return replace(view, alive=sum(not any(one[sign] for sign in gone) for one in replicas))


def _refusal(error: exceptions.RedisError) -> str:
    said = refusal_of(error).replace("refuses", "refuse")
    return f"the sentinels {said} (the option sentinel_password, with sentinel_username where they have users)"


class LedConnections(Connections):
    """Connections to whichever server the sentinels name."""

    def __init__(self, url: str, *, wait_s: float, **given: Any) -> None:
        address = parse(url)
        super().__init__(wait_s=wait_s, **given, **address.of_master)
        self.sentinels = Sentinels(address, timeout_s=wait_s, on_switched=lambda: self.renew(at_once=True))

    async def address(self) -> tuple[str, int]:
        return await self.sentinels.master()

    async def aclose(self) -> None:
        await super().aclose()
        await self.sentinels.aclose()
