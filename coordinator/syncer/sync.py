"""The config syncer's loop: fetch every source, merge what is good, publish it, and keep doing so.

It knows nothing of Redis: `publish` and `warn` are given. It publishes again although nothing has changed, so that a
wiped Redis has its configuration back within seconds. `publish` makes no new revision of what is there already.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from coordinator.syncer.fetch import fetch
from fleet.clock import Clock
from fleet.config.router import RouterConfig, canonical, merge, parse_router_config, shown_uri
from fleet.errors import FleetError, InvalidConfig, StateError
from fleet.message import DEFAULT_POOL
from fleet.waiting import happens
from fleet.words import number

log = logging.getLogger("fleet.syncer")

TICK_S = 1.0
"""How soon a changed file is seen."""
REPUBLISH_S = 1.0

Severity = Literal["WARN", "CRITICAL"]
Warn = Callable[[str, Severity, str], Awaitable[None]]
Sleep = Callable[[float], Awaitable[None]]
Answer = Callable[[str, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a configuration that was to be published."""

    revision: str
    """The one in force now; '' for none."""
    in_force: bool = True
    """Whether that is the one that was to be published."""


class Publish(Protocol):
    async def __call__(self, config: RouterConfig, *, is_fresh: Callable[[], bool]) -> Published:
        """`is_fresh`: whether each source was read, or given up, since we lead."""


async def _tell_nobody(_request: str, _error: str) -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a sync is tried before it has failed for good (the numbers are seed 000's)."""

    attempts: int = 12
    pause_s: float = 5.0


def limit_pools(config: RouterConfig, *, max_pools: int) -> tuple[RouterConfig, tuple[str, ...]]:
    """The configuration with no more than `max_pools` pools, and the codes of those left out."""
    if len(config.pools) <= max_pools:
        return config, ()
    # DEFAULT-POOL comes first, and is never left out: messages for unknown pools go there.
    ordered = sorted(config.pools, key=lambda pool: pool.code != DEFAULT_POOL)
    kept, dropped = ordered[:max_pools], ordered[max_pools:]
    limited = RouterConfig(queues=config.queues, pools=tuple(kept), remarks=config.remarks)
    return limited, tuple(pool.code for pool in dropped)


class _Source:
    """One URL or file, and the last good configuration it gave."""

    def __init__(self, address: str, fetch: Callable[[str], bytes]) -> None:
        self.address = address
        self.is_file = "://" not in address
        self.good: RouterConfig | None = None
        self.due_ms = 0.0
        self.is_fresh = False
        self.failures = 0
        self._fetch = fetch
        self._seen: tuple[int, ...] | None = None

    async def read(self) -> RouterConfig:
        # Stamped before it is read: a change between the two is then seen again, not missed.
        self._seen = self._stamp()
        data = await asyncio.to_thread(self._fetch, self.address)
        try:
            self.good = parse_router_config(data)
        except InvalidConfig as error:
            raise InvalidConfig(f"{shown_uri(self.address)}: {error}") from error
        return self.good

    def changed(self) -> bool:
        return self.is_file and self._stamp() != self._seen

    def _stamp(self) -> tuple[int, ...]:
        if not self.is_file:
            return ()
        try:
            found = os.stat(self.address)
        except OSError:
            return ()
        return (found.st_mtime_ns, found.st_size, found.st_ino)


class Sync:
    """Keeps the published configuration equal to its sources. A source that fails counts with its last good one."""

    def __init__(
        self,
        *,
        sources: str,
        publish: Publish,
        warn: Warn,
        clock: Clock,
        inline: bytes = b"",
        sync_interval_s: float = 300.0,
        max_pools: int = 10_000,
        pool_warning_threshold: int = 5_000,
        retry: RetryPolicy | None = None,
        sleep: Sleep = asyncio.sleep,
        fetch: Callable[[str], bytes] = fetch,
        on_new: Callable[[RouterConfig], None] = lambda _: None,
        on_reloaded: Answer = _tell_nobody,
    ) -> None:
        """`on_new` is told each new configuration once it is published.

        `on_reloaded` is told who asked for a reload, and what was wrong; '' for nothing.
        """
        self._sources = [_Source(item.strip(), fetch) for item in sources.split(",") if item.strip()]
        self._inline = parse_router_config(inline) if inline else None
        if not self._sources and self._inline is None:
            raise InvalidConfig(
                "no router configuration is given (--config, FLEET_CONFIG or MESSAGE_ROUTER_CONFIG_URL)"
            )
        self._publish = publish
        self._warn = warn
        self._clock = clock
        self._interval_ms = sync_interval_s * 1000
        self._max_pools = max_pools
        self._pool_warning_threshold = pool_warning_threshold
        self._retry = retry or RetryPolicy()
        self._sleep = sleep
        self._on_new = on_new
        self._on_reloaded = on_reloaded
        self._asked = ""
        """The request that the next tick reloads for; '' for none."""
        self._published: bytes | None = None
        self._republish_ms = 0.0
        self._state_away = False
        self._nudge = asyncio.Event()
        self.revision = ""
        """The one in force when we last looked, ours or another's."""

    async def initial(self) -> None:
        """The first sync: every source must be good once. Raises the last attempt's error."""
        for attempt in range(1, self._retry.attempts + 1):
            try:
                await self._read_all()
                await self._publish_all()
                return
            except FleetError as error:
                log.warning("sync %d of %d failed: %s", attempt, self._retry.attempts, error)
                if attempt == self._retry.attempts:
                    await self._tell("CONFIG_SYNC_FAILED", "CRITICAL", str(error))
                    raise
            await self._sleep(self._retry.pause_s)
        raise AssertionError("a retry policy has at least one attempt")

    async def _read_all(self) -> None:
        """InvalidConfig names every source that failed: nobody mends one only to hear of the next."""
        failures = [failure for failure in await asyncio.gather(*map(self._read, self._sources)) if failure]
        if failures:
            raise InvalidConfig("; ".join(failures))

    async def _read(self, source: _Source) -> str:
        """Returns what was wrong; '' for nothing."""
        try:
            await source.read()
        except InvalidConfig as error:
            return str(error)
        self._plan(source)
        return ""

    async def run(self) -> None:
        """For ever, after `initial`."""
        while True:
            self._nudge.clear()
            await self.tick()
            await happens(self._nudge, within_s=TICK_S)

    def reload(self, request: str = "") -> None:
        """Read everything at the next tick: `fleet config reload` asks for it."""
        self._asked = request
        for source in self._sources:
            source.due_ms = 0.0
        self._nudge.set()

    def reread(self) -> None:
        """From now on we publish, after another. What we have read may be older than what that one had."""
        for source in self._sources:
            source.due_ms, source.is_fresh = 0.0, False
        self._republish_ms = 0.0
        self._nudge.set()

    async def tick(self) -> None:
        """One look: read what is due, publish what changed or may have been lost."""
        now_ms = self._clock.boot_ms()
        asked, self._asked = self._asked, ""
        due = [source for source in self._sources if asked or now_ms >= source.due_ms or source.changed()]
        # Side by side, so that a URL that takes its whole timeout holds up no changed file.
        failures = [failure for failure in await asyncio.gather(*map(self._refresh, due)) if failure]
        if due or now_ms >= self._republish_ms:
            try:
                await self._publish_all()
                self._state_away = False
            except StateError as error:
                failures.append(str(error))
                # Logged once for each outage: every tick tries again.
                if not self._state_away:
                    log.warning("cannot publish the configuration: %s", error)
                self._state_away = True
        if asked:
            await self._on_reloaded(asked, "; ".join(failures))

    async def _refresh(self, source: _Source) -> str:
        """Returns what was wrong; '' for nothing."""
        try:
            await source.read()
        except InvalidConfig as error:
            source.failures += 1
            log.warning("sync failed, the last good configuration stays: %s", error)
            # A file stays wrong until it is written again. A URL may only be away for a moment.
            given_up = source.is_file or source.failures >= self._retry.attempts
            if given_up:
                await self._tell("CONFIG_SYNC_FAILED", "WARN", str(error))
                self._plan(source)
            else:
                source.due_ms = self._clock.boot_ms() + self._retry.pause_s * 1000
            return str(error)
        self._plan(source)
        return ""

    def _plan(self, source: _Source) -> None:
        source.failures, source.is_fresh = 0, True
        # Files are watched, so they are never due.
        source.due_ms = float("inf") if source.is_file else self._clock.boot_ms() + self._interval_ms

    async def _publish_all(self) -> None:
        goods = [source.good for source in self._sources if source.good is not None]
        if self._inline is not None:
            goods.append(self._inline)
        config, dropped = limit_pools(merge(goods), max_pools=self._max_pools)
        # Counted from before the call: a slow Redis is not asked more often.
        self._republish_ms = self._clock.boot_ms() + REPUBLISH_S * 1000
        published = await self._publish(config, is_fresh=self._is_fresh)
        self.revision = published.revision
        if not published.in_force:
            self._published = None  # news again once it is in force
            return
        body = canonical(config)
        if body != self._published:
            self._published = body
            queues, pools = number(len(config.queues), "queue"), number(len(config.pools), "pool")
            log.info("revision %s: %s, %s", self.revision, queues, pools)
            self._on_new(config)
            await self._remark(config, dropped)

    def _is_fresh(self) -> bool:
        return all(source.is_fresh for source in self._sources)

    async def _remark(self, config: RouterConfig, dropped: tuple[str, ...]) -> None:
        for remark in config.remarks:
            log.warning("%s", remark)
        if dropped:
            many = f"pools above the limit of {self._max_pools} are left out, the first is {dropped[0]}"
            text = number(len(dropped), f"pool above the limit of {self._max_pools} is left out: {dropped[0]}", many)
            await self._tell("POOL_LIMIT", "CRITICAL", text)
        elif len(config.pools) >= self._pool_warning_threshold:
            await self._tell(
                "POOL_LIMIT", "WARN", f"{number(len(config.pools), 'pool')}, the limit is {self._max_pools}"
            )

    async def _tell(self, category: str, severity: Severity, text: str) -> None:
        try:
            await self._warn(category, severity, text)
        except StateError as error:
            # What a warning is about is often why it cannot be stored.
            log.warning("%s %s not stored (%s): %s", severity, category, error, text)
