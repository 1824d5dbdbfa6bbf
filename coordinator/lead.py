"""Which queues this coordinator owns, and whether it leads: one lease each, shared out fairly."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec

from coordinator.consume import Consumer, leaves_disorder
from coordinator.directory import Directory
from coordinator.rooms import Rooms
from fleet.alarms import Alarms
from fleet.clock import Clock
from fleet.config import QueueConfig
from fleet.errors import Fenced, FleetError, SourceUnavailable, StateError, StateUnavailable
from fleet.lease import Lease
from fleet.sources.base import Source
from fleet.sources.open import OpenSource, open_source
from fleet.state.connect import Client
from fleet.state.keys import FleetKeys, QueueKeys
from fleet.state.queue import Queue
from fleet.state.registry import Registry

log = logging.getLogger("fleet.coordinator")

_ROUNDS = 10
"""A lease's time holds this many looks: a dead owner's queue is taken so soon after it lapsed."""
_AFTER_ERROR_MS, _AFTER_ERROR_MOST_MS, _AFTER_FENCED_MS = 2000, 60_000, 500
_PATIENCE_S = 15.0
_STOP_WITHIN_S = 25.0

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(QueueConfig).decode


class Owned:
    """One queue of ours, from the grant of its lease to its end."""

    def __init__(self, config: QueueConfig, lease: Lease) -> None:
        self.config = config
        self.lease = lease
        self.consumer: Consumer | None = None
        self.task: asyncio.Task[None] | None = None
        self.renewal: asyncio.Task[None] | None = None
        self.restarting = False
        self.closing = False

    def abandon(self) -> None:
        """It did not stop by itself."""
        if self.task is not None and not self.closing:
            self.task.cancel()

    def stop(self) -> None:
        if self.consumer is not None:
            self.consumer.stop()


class Lead:
    """Acquires, renews and gives back leases. Everything else a coordinator does hangs on one of them."""

    def __init__(
        self,
        *,
        name: str,
        client: Client,
        directory: Directory,
        clock: Clock,
        ttl_ms: int,
        rooms: Rooms,
        alarms: Alarms,
        enabled: bool,
        on_crash: Callable[[asyncio.Task[None]], None],
        open_source: OpenSource = open_source,
        patience_s: float = _PATIENCE_S,
        stop_within_s: float = _STOP_WITHIN_S,
    ) -> None:
        """`patience_s`: how long a source may take to open, to stop or to close; `stop_within_s`: all, as we end."""
        self.name = name
        self._client = client
        self._registry = Registry(client)
        self._directory = directory
        self._clock = clock
        self._ttl_ms = ttl_ms
        self._rooms = rooms
        self._alarms = alarms
        self._enabled = enabled
        self._on_crash = on_crash
        self._open_source = open_source
        self._patience_s = patience_s
        self._stop_within_s = stop_within_s
        self._look = asyncio.Event()
        self._over = asyncio.Event()
        """What we own is kept until it has ended, however long that takes."""
        self._stopping = False
        self._away = False
        self._not_before: dict[str, float] = {}
        self._failures: dict[str, tuple[int, str]] = {}
        self._restarts: set[str] = set()
        """Queues whose consumer we ended for its own good, until another reads them."""
        self._leases: dict[str, Lease] = {}
        self._over_share_since: float | None = None
        self.alive: set[str] = {name}
        """Every process of the fleet, as of the last round."""
        self.owned: dict[str, Owned] = {}
        self.counts: dict[str, Counter[str]] = {}
        self.lost: Counter[str] = Counter()
        """Leases that ended against our will."""
        self.leadership = self._lease(FleetKeys.leader)

    def look(self) -> None:
        """A lease may be free."""
        self._look.set()

    def on_settled(self, queue: str) -> None:
        owned = self.owned.get(queue)
        if owned is not None and owned.consumer is not None:
            owned.consumer.acknowledger.wake.set()

    def consumers(self) -> dict[str, Any]:
        """Of the queues we own: when they were polled last (ms ago), and which of them do not come back."""
        consumers = {name: one.consumer for name, one in self.owned.items() if one.consumer is not None}
        polls = {name: consumer.ms_since_poll for name, consumer in consumers.items()}
        return {
            "polls": {name: ms for name, ms in polls.items() if ms is not None},
            "stuck": sorted(name for name, consumer in consumers.items() if consumer.is_stuck()),
        }

    async def run(self) -> None:
        keeping = asyncio.get_running_loop().create_task(self._keep_queues())
        keeping.add_done_callback(self._on_crash)
        try:
            await self._look_after_all()
            await self._over.wait()
        finally:
            keeping.cancel()

    async def _look_after_all(self) -> None:
        while not self._stopping:
            self._look.clear()
            soon_ms = await self._round()
            try:
                async with asyncio.timeout(soon_ms / 1000):
                    await self._look.wait()
            except TimeoutError:
                continue

    async def stop(self) -> None:
        """Give every lease back, so that the others need not wait for it to lapse."""
        self._stopping = True
        self._look.set()
        owned = list(self.owned.values())
        for one in owned:
            one.stop()
        await self._all_end(owned, self._stop_within_s)
        if self.owned:
            log.warning("left behind, as they do not stop: %s", ", ".join(sorted(self.owned)))
            for one in owned:
                one.abandon()
            await self._all_end(owned, self._patience_s)
        self._over.set()
        try:
            await self.leadership.release()
        except StateError as error:
            log.debug("leadership not given back: %s", error)

    async def _all_end(self, owned: list[Owned], within_s: float) -> None:
        tasks = [one.task for one in owned if one.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=within_s)

    # A round --------------------------------------------------------------------------------------

    async def _round(self) -> float:
        """Renew what we have, take what is free and due to us. Returns the ms until the next."""
        soon_ms = self._ttl_ms / _ROUNDS
        self._keep_now()
        try:
            alive = await self._registry.alive()
            self.alive = alive | {self.name}
            await self._keep_leadership()
            if not self.leadership.held and self.leadership.held_by is not None:
                soon_ms = min(soon_ms, self.leadership.held_by.remaining_ms + 5)
            for one in list(self.owned.values()):
                if one.consumer is not None and one.consumer.is_stuck():
                    self._restart(one)
            soon_ms = min(soon_ms, await self._share_out())
            self._away = False
        except StateError as error:
            self.lost["leader_leases_lost"] += bool(self.leadership.epoch)
            self.leadership.drop()
            if not self._away:
                log.warning("%s; queues are left to others, and taken again when it is back", error)
            self._away = True
        return max(soon_ms, 10.0)

    async def _keep_queues(self) -> None:
        """Beside the rounds, and each by itself: what a part of Redis keeps waiting may cost no queue of another."""
        while True:
            self._keep_now()
            await asyncio.sleep(self._ttl_ms / _ROUNDS / 1000)

    def _keep_now(self) -> None:
        for one in self.owned.values():
            if one.lease.epoch and one.lease.ageing and one.renewal is None:
                one.renewal = asyncio.get_running_loop().create_task(self._renew(one))
                one.renewal.add_done_callback(self._on_crash)

    async def _renew(self, one: Owned) -> None:
        try:
            kept = await one.lease.renew()
        except StateError as error:
            # It may still be ours, until its deadline.
            log.warning("queue %s: its lease cannot be renewed: %s", one.config.name, error)
            kept = one.lease.held
        finally:
            one.renewal = None
        if not kept and not one.closing:
            log.warning("lost the lease on queue %s", one.config.name)
            one.stop()

    async def _keep_leadership(self) -> None:
        lease = self.leadership
        led = bool(lease.epoch)
        if not lease.held or (lease.ageing and not await lease.renew()):
            self.lost["leader_leases_lost"] += led
            if await self.leadership.acquire() and not led:
                log.info("%s leads the fleet", self.name)

    async def _share_out(self) -> float:
        soon_ms = self._ttl_ms / _ROUNDS
        if not self._enabled or not self._directory.revision:
            return soon_ms  # a queue that is not configured is drained: not before we know what is
        queues = self._directory.queues()
        for name, body in (await self._registry.queues()).items():
            if name not in queues:
                queues[name] = replace(_decode(body), draining=True)
        for name, one in list(self.owned.items()):
            if queues.get(name) != one.config:
                one.stop()  # gone from the configuration, or changed there: begun anew below
        coordinators = sum(name.startswith("coordinator-") for name in self.alive)
        share = math.ceil(len(queues) / coordinators)
        self._give_up_surplus(share)
        for name, config in queues.items():
            if name in self.owned:
                continue
            if self._is_stopping() or len(self.owned) >= share:
                break
            if self._clock.boot_ms() < self._not_before.get(name, 0.0):
                continue
            lease = self._leases.setdefault(name, self._lease(QueueKeys(name).owner))
            if await self._acquired(lease):
                if self._is_stopping():
                    await lease.release()
                    break
                self._begin(config, lease)
            elif lease.held_by is not None:
                self._restarts.discard(name)  # somebody else sees to it
                # It lapses then, if nobody renews it: be there.
                soon_ms = min(soon_ms, lease.held_by.remaining_ms + 5)
        return soon_ms

    async def _acquired(self, lease: Lease) -> bool:
        try:
            return await lease.acquire()
        except StateUnavailable as error:
            # Its node of a Cluster, perhaps: the others may be had.
            log.debug("%s", error)
            return False

    def _is_stopping(self) -> bool:
        return self._stopping

    def _give_up_surplus(self, share: int) -> None:
        if len(self.owned) <= share:
            self._over_share_since = None
            return
        now = self._clock.boot_ms()
        # A coordinator that restarts is missed for a moment: not every change of numbers is worth a move.
        if self._over_share_since is None:
            self._over_share_since = now
        elif now - self._over_share_since > self._ttl_ms / 2:
            for one in sorted(self.owned.values(), key=lambda one: one.config.name)[share:]:
                log.info("giving queue %s to another coordinator", one.config.name)
                one.stop()
            self._over_share_since = None

    def _restart(self, one: Owned) -> None:
        """End a consumer that does not come back; the next round begins another."""
        if not one.restarting:
            one.restarting = True
            self._restarts.add(one.config.name)
            text = f"queue {one.config.name} was not polled for a minute, its consumer is restarted"
            self._alarms.add("CONSUMER_RESTART", "WARN", text)
            one.stop()
            asyncio.get_running_loop().call_later(self._patience_s, one.abandon)

    def _begin(self, config: QueueConfig, lease: Lease) -> None:
        one = self.owned[config.name] = Owned(config, lease)
        one.task = asyncio.get_running_loop().create_task(self._work(one))
        one.task.add_done_callback(self._on_crash)

    async def _work(self, one: Owned) -> None:
        name = one.config.name
        source: Source | None = None
        try:
            config = one.config
            source = self._open_source(
                name, config.uri, config.visibility_timeout_s * 1000, connections=config.connections
            )
            if one.config.draining and not await self._has_work(name):
                await self._registry.forget_queue(name)
                return
            await self._in_time(source.open(), f"queue {name} did not open")
            await self._registry.remember_queue(name, _encode(replace(one.config, draining=False)))
            self._failures.pop(name, None)
            self._restarts.discard(name)
            if not one.lease.held:
                raise Fenced("its lease lapsed before it was begun")
            one.consumer = Consumer(
                config=one.config,
                client=self._client,
                registry=self._registry,
                directory=self._directory,
                source=source,
                lease=one.lease,
                clock=self._clock,
                rooms=self._rooms,
                alarms=self._alarms,
                counts=self.counts.setdefault(name, Counter()),
                draining=one.config.draining,
            )
            log.info("%s owns queue %s", self.name, name)
            await one.consumer.run()
            if self._stopping and one.lease.held and await self._is_last():
                await one.consumer.hand_back()
            if one.consumer.drained:
                await self._registry.forget_queue(name)
                del self.counts[name]
        except Fenced as error:
            log.warning("queue %s: %s", name, error)
            if one.lease.held:
                # It is ours, and a pool remembers a newer owner: of a time before the clock of Redis stepped back and
                # Redis forgot. Whatever it is that keeps it from us, we do not ask for it all the time.
                one.lease.above = max(one.lease.above, error.epoch, key=int)
                self._not_before[name] = self._clock.boot_ms() + _AFTER_FENCED_MS
        except FleetError as error:
            # Whatever was half done is found by the next take-over, ours or another's.
            self._note_failure(name, str(error))
            if name in self._restarts and not one.restarting:
                self._alarms.add("CONSUMER_RESTART_FAILED", "CRITICAL", f"queue {name}: {error}", logged=True)
            elif not isinstance(error, StateError):
                self._alarms.add("QUEUE_UNAVAILABLE", "ERROR", f"queue {name}: {error}", logged=True)
        finally:
            one.closing = True
            self.lost["queue_leases_lost"] += not one.lease.held
            await self._let_go(one, source)
            del self.owned[name]
            self._look.set()

    async def _let_go(self, one: Owned, source: Source | None) -> None:
        try:
            if source is not None:
                await self._in_time(source.close(), f"queue {one.config.name} did not close")
            if source is not None and leaves_disorder(one.consumer, source, one.lease):
                # Given back, it would be polled at once: who waits for it to lapse waits for what is out as well.
                log.info("queue %s: left to lapse, as not all that it gave is known of", one.config.name)
                one.lease.drop()
            else:
                await one.lease.release()
        except FleetError as error:
            log.warning("%s", error)
            one.lease.drop()

    async def _in_time(self, call: Awaitable[None], text: str) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                await call
        except TimeoutError:
            raise SourceUnavailable(f"{text} within {self._patience_s:g} s") from None

    def _note_failure(self, name: str, text: str) -> None:
        """Try again later and later, and say so once for each reason."""
        times, said = self._failures.get(name, (0, ""))
        if text != said:
            log.error("queue %s: %s", name, text)
        self._failures[name] = times + 1, text
        pause_ms = min(_AFTER_ERROR_MS * 2**times, _AFTER_ERROR_MOST_MS)
        self._not_before[name] = self._clock.boot_ms() + pause_ms

    async def _has_work(self, name: str) -> bool:
        queue = Queue(self._client, name)
        return bool(await queue.tracked_count() + await queue.settled_count())

    async def _is_last(self) -> bool:
        alive = await self._registry.alive()
        return not any(name.startswith("coordinator-") and name != self.name for name in alive)

    def _lease(self, key: str) -> Lease:
        return Lease(client=self._client, key=key, owner=self.name, ttl_ms=self._ttl_ms, clock=self._clock)
