"""One coordinator process: its parts, what it says of itself, and the order in which it ends."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from coordinator.directory import Directory
from coordinator.lead import Leadership
from coordinator.ownership import Ownership
from coordinator.parts import Parts
from coordinator.put_off import PoolLimits
from coordinator.rooms import Rooms
from coordinator.rounds import Rounds
from coordinator.watch import WATCH_EVERY_S, Watch
from fleet.alarms import Alarms
from fleet.clock import Clock
from fleet.config.router import MIN_CAPACITY
from fleet.config.settings import Settings
from fleet.lease import Lease
from fleet.metrics.port import serve_metrics
from fleet.process import Heartbeat, Identity, Life
from fleet.state.connect import Client
from fleet.state.keys import CHANGED_CHANNEL, ROOM_CHANNEL, SETTLED_CHANNEL, FleetKeys
from fleet.state.registry import Registry
from fleet.state.signals import Signals
from fleet.state.warnings import Warnings

log = logging.getLogger("fleet.coordinator")


class Coordinator:
    def __init__(self, *, identity: Identity, client: Client, clock: Clock, life: Life, settings: Settings) -> None:
        name, ttl_ms = identity.name, settings.lease.ttl_ms
        self._name = name
        self._life = life
        self._enabled = settings.config.enabled
        registry = Registry(client)
        self._alarms = Alarms(warnings=Warnings(client), source=identity.role)
        self._directory = Directory(
            registry=registry, look_every_s=min(1.0, ttl_ms / 2000), on_change=self._on_new_configuration
        )
        self._lead = Leadership(
            name=name,
            lease=Lease(client=client, key=FleetKeys.leader, owner=name, ttl_ms=ttl_ms, clock=clock),
        )
        self._watch = Watch(
            client=client,
            directory=self._directory,
            leads=lambda: self._lead.held,
            alarms=self._alarms,
            clock=clock,
            every_s=min(WATCH_EVERY_S, ttl_ms / 3000),
        )
        self._rooms = Rooms(client=client, clock=clock, limits_of=self._limits_of, full=lambda: self._watch.memory_full)
        parts = Parts(
            name=name,
            client=client,
            registry=registry,
            directory=self._directory,
            rooms=self._rooms,
            alarms=self._alarms,
            clock=clock,
        )
        self._ownership = Ownership(parts=parts, ttl_ms=ttl_ms, enabled=self._enabled, on_crash=life.check)
        self._rounds = Rounds(
            name=name,
            registry=registry,
            lead=self._lead,
            ownership=self._ownership,
            ttl_ms=ttl_ms,
            on_crash=life.check,
        )
        self._heartbeat = Heartbeat(registry=registry, identity=identity, ttl_ms=ttl_ms, describe=self._describe)
        self._signals = Signals(
            client=client,
            url=settings.redis.url,
            handlers={
                CHANGED_CHANNEL: self._look,
                ROOM_CHANNEL: self._rooms.on_signal,
                SETTLED_CHANNEL: self._ownership.on_settled,
            },
            on_subscribed=self._look,
        )

    async def run(self, metrics_port: int | None = None) -> None:
        """Until SIGTERM, or until something crashes."""
        await self._heartbeat.beat()
        await self._directory.refresh()
        jobs = (
            self._heartbeat.run(),
            self._signals.run(),
            self._directory.run(),
            self._rounds.run(),
            self._watch.run(),
            serve_metrics(metrics_port, self._heartbeat.counted),
        )
        for job in jobs:
            self._life.spawn(asyncio.get_running_loop().create_task(job))
        if not self._enabled:
            log.warning("the router is switched off (MESSAGE_ROUTER_ENABLED): no queue is read here")
        log.info("%s coordinates", self._name)
        await self._life.wait()
        await self._stop()

    async def _stop(self) -> None:
        # The watch goes first: it would mend what we are taking apart.
        await self._watch.stop()
        # Leave the registry before the leases come free, so that the others count their share without us.
        await self._heartbeat.withdraw()
        await self._rounds.stop()
        await self._life.cancel()
        await self._heartbeat.leave()
        await self._alarms.flush()

    def _describe(self) -> dict[str, Any]:
        """What the heartbeat says of us."""
        lead, ownership = self._lead, self._ownership
        counts = {name: dict(counts) for name, counts in ownership.counts.items()}
        return {
            "queues": sorted(ownership.owned),
            "epoch": lead.epoch,
            "leader": lead.held,
            "enabled": self._enabled,
            **ownership.consumers(),
            "counts": {**lead.lost, **ownership.lost, **counts},
        }

    def _limits_of(self, code: str) -> PoolLimits:
        pool = self._directory.config.pool(code)
        return PoolLimits(pool.capacity, pool.concurrency) if pool is not None else PoolLimits(MIN_CAPACITY, 1)

    def _on_new_configuration(self) -> None:
        self._rooms.forget()
        self._rounds.look()

    def _look(self, _what: str = "") -> None:
        """There may be a new configuration, or a free lease. There may also be when we can hear again after a while."""
        self._directory.look()
        self._rounds.look()
