"""One syncer process: its parts, what it says of itself, and the order in which it ends."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from coordinator.syncer.leading import Leading
from coordinator.syncer.publish import RevisionPublisher
from coordinator.syncer.sync import RetryPolicy, Severity, Sync
from coordinator.syncer.validate import Validator
from fleet.clock import Clock
from fleet.config.settings import Settings
from fleet.errors import FleetError
from fleet.lease import Lease
from fleet.metrics.port import serve_metrics
from fleet.process import Heartbeat, Identity, Life
from fleet.sources.check import haste_of
from fleet.state.connect import Client
from fleet.state.keys import CHANGED_CHANNEL, FleetKeys
from fleet.state.registry import Registry
from fleet.state.reload import request_of
from fleet.state.signals import Signals
from fleet.state.warnings import Warnings

log = logging.getLogger("fleet.syncer")


class Syncer:
    def __init__(
        self,
        *,
        identity: Identity,
        client: Client,
        clock: Clock,
        life: Life,
        settings: Settings,
        retry: RetryPolicy | None,
    ) -> None:
        self._name = identity.name
        self._life = life
        self._warnings = Warnings(client)
        self._reloaded = {"request": "", "error": ""}
        """The last reload that was asked for, and what was wrong with it."""
        ttl_ms, config = settings.lease.ttl_ms, settings.config
        registry = Registry(client)
        self._validator = Validator(warn=self._warn, remark_on=lambda queue: haste_of(queue, ttl_ms))
        self._leading = Leading(
            name=identity.name,
            lease=Lease(client=client, key=FleetKeys.syncer, owner=identity.name, ttl_ms=ttl_ms, clock=clock),
            publisher=RevisionPublisher(client=client),
            registry=registry,
            clock=clock,
            ttl_ms=ttl_ms,
            warn=self._warn,
            on_lead=lambda: self._sync.reread(),
        )
        self._sync = Sync(
            sources=config.source,
            inline=config.inline,
            publish=self._leading.publish,
            warn=self._tell,
            clock=clock,
            sync_interval_s=config.sync_interval_s,
            max_pools=config.max_pools,
            pool_warning_threshold=config.pool_warning_threshold,
            retry=retry,
            on_new=self._validator.look_at,
            on_reloaded=self._on_reloaded,
        )
        self._heartbeat = Heartbeat(registry=registry, identity=identity, ttl_ms=ttl_ms, describe=self._describe)
        self._signals = Signals(
            client=client,
            url=settings.redis.url,
            handlers={CHANGED_CHANNEL: self._on_changed},
            # If we miss that a reload is asked for, whoever asked sees nothing change and asks again.
            on_subscribed=self._leading.look,
        )

    async def run(self, metrics_port: int | None = None) -> None:
        """Until SIGTERM, until the first sync fails for good, or until something crashes."""
        await self._heartbeat.beat()
        jobs = (
            self._heartbeat.run(),
            self._signals.run(),
            self._keep_in_sync(),
            self._leading.run(),
            self._validator.run(),
            serve_metrics(metrics_port, self._heartbeat.counted),
        )
        for job in jobs:
            self._life.spawn(asyncio.get_running_loop().create_task(job))
        log.info("%s syncs", self._name)
        await self._life.wait()
        await self._life.cancel()
        await self._leading.release()
        await self._heartbeat.leave()

    async def _keep_in_sync(self) -> None:
        try:
            await self._sync.initial()
        except FleetError as error:
            # Final: a fleet that never had a configuration has nothing to fall back on.
            log.error("%s", error)
            self._life.crash = error
            self._life.end()
            return
        # At once: whoever started us waits for it.
        await self._heartbeat.beat()
        await self._sync.run()

    def _describe(self) -> dict[str, Any]:
        """What the heartbeat says of us."""
        return {
            "revision": self._sync.revision,
            "leads": self._leading.leads,
            "follows": self._leading.leader,
            "differs": self._leading.differs,
            "reloaded": self._reloaded,
        }

    async def _tell(self, category: str, severity: Severity, text: str) -> None:
        log.log(logging.ERROR if severity == "CRITICAL" else logging.WARNING, "%s: %s", category, text)
        await self._warnings.add(category, severity, text, "syncer")

    async def _warn(self, category: str, text: str) -> None:
        await self._tell(category, "WARN", text)

    def _on_changed(self, what: str) -> None:
        if what == "lease":
            self._leading.look()
        request = request_of(what)
        # Whoever has had no answer yet asks again. What was done is not done twice.
        if self._leading.leads and request not in ("", self._reloaded["request"]):
            log.info("asked to read the configuration")
            self._sync.reload(request)

    async def _on_reloaded(self, request: str, error: str) -> None:
        self._reloaded.update(request=request, error=error)
        await self._heartbeat.beat()
