"""Which queues this coordinator owns: it takes free ones up to its fair share, and gives up any beyond that.

To own a queue is to hold its lease. What an owner does for its queue is in `duties.py`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from coordinator.fair_share import Surplus, coordinators_of, fair_share
from coordinator.owned import Owned
from coordinator.parts import Parts
from coordinator.setbacks import Setbacks
from fleet.config.router import QueueConfig
from fleet.errors import Fenced, FleetError, LeaseLapsed, StateError, StateUnavailable
from fleet.lease import Lease
from fleet.sources.open import OpenSource, open_source
from fleet.state.keys import QueueKeys
from fleet.words import unnamed

log = logging.getLogger("fleet.coordinator")

_PATIENCE_S = 15.0
_STOP_WITHIN_S = 25.0

_decode = msgspec.json.Decoder(QueueConfig).decode


class Ownership:
    def __init__(
        self,
        *,
        parts: Parts,
        ttl_ms: int,
        enabled: bool,
        on_crash: Callable[[asyncio.Task[None]], None],
        open_source: OpenSource = open_source,
        patience_s: float = _PATIENCE_S,
        stop_within_s: float = _STOP_WITHIN_S,
    ) -> None:
        """`patience_s`: how long a source may take to open, to stop or to close; `stop_within_s`: all, as we end."""
        self._parts = parts
        self._ttl_ms = ttl_ms
        self._enabled = enabled
        self._on_crash = on_crash
        self._open_source = open_source
        self._patience_s = patience_s
        self._stop_within_s = stop_within_s
        self._stopping = False
        self._leases: dict[str, Lease] = {}
        self._surplus = Surplus(patience_ms=ttl_ms / 2)
        self._setbacks = Setbacks(parts.clock)
        self._restarts: set[str] = set()
        """Queues whose consumer we ended because it was stuck, until somebody reads them again."""
        self.on_let_go: Callable[[], None] = lambda: None
        """Called when we have let a queue go. It may be free."""
        self.owned: dict[str, Owned] = {}
        self.counts: dict[str, Counter[str]] = {}
        self.lost: Counter[str] = Counter()
        """Leases that ended against our will."""

    def on_settled(self, queue: str) -> None:
        owned = self.owned.get(queue)
        if owned is not None and owned.duties is not None:
            owned.duties.on_settled()

    def consumers(self) -> dict[str, Any]:
        """Of the queues we own: how many ms ago each was polled last, and which consumers are stuck."""
        running = {name: one.duties for name, one in self.owned.items() if one.duties is not None}
        polls = {name: duties.ms_since_poll for name, duties in running.items()}
        return {
            "polls": {name: ms for name, ms in polls.items() if ms is not None},
            "stuck": sorted(name for name, duties in running.items() if duties.is_stuck()),
        }

    async def stop(self) -> None:
        """Stop all that we own, and wait for it to end."""
        self._stopping = True
        owned = list(self.owned.values())
        for one in owned:
            one.stop()
        await self._all_end(owned, self._stop_within_s)
        if self.owned:
            log.warning("left behind, as they do not stop: %s", ", ".join(sorted(self.owned)))
            for one in owned:
                one.abandon()
            await self._all_end(owned, self._patience_s)

    async def _all_end(self, owned: list[Owned], within_s: float) -> None:
        tasks = [one.task for one in owned if one.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=within_s)

    # What each round does -------------------------------------------------------------------------

    def keep(self) -> None:
        """Renew the leases that are due. Each renewal runs by itself: one that waits costs us no other queue."""
        for one in self.owned.values():
            one.keep(self._on_crash)

    def restart_stuck(self) -> None:
        """Stop each consumer that is stuck. `share_out` begins another."""
        for one in list(self.owned.values()):
            if one.duties is not None and one.duties.is_stuck() and not one.restarting:
                one.restarting = True
                self._restarts.add(one.config.name)
                text = f"queue {one.config.name} was not polled for a minute, its consumer is restarted"
                self._parts.alarms.add("CONSUMER_RESTART", "WARN", text)
                one.stop()
                asyncio.get_running_loop().call_later(self._patience_s, one.abandon)

    async def share_out(self, alive: set[str]) -> float:
        """Take free queues, give up a surplus. Returns in how many ms the next lease of another lapses, or inf.

        `alive`: every process of the fleet, including us.
        """
        if not self._enabled or not self._parts.directory.revision:
            return math.inf  # without a configuration we would drain every queue
        queues = self._parts.directory.queues()
        for name, body in (await self._parts.registry.queues()).items():
            if name not in queues:
                queues[name] = replace(_decode(body), draining=True)
        for name, one in list(self.owned.items()):
            if queues.get(name) != one.config:
                one.stop()  # gone from the configuration, or changed there: begun anew once it has ended
        share = fair_share(len(queues), alive)
        for name in self._surplus.to_give_up(self.owned, share, self._parts.clock.boot_ms()):
            log.info("giving queue %s to another coordinator", name)
            self.owned[name].stop()
        return await self._take_free(queues, share)

    async def _take_free(self, queues: dict[str, QueueConfig], share: int) -> float:
        lapses_ms = math.inf
        for name, config in queues.items():
            if name in self.owned:
                continue
            if self._is_stopping() or len(self.owned) >= share:
                break
            if not self._setbacks.may_begin(name):
                continue
            lease = self._leases.setdefault(name, self._lease_of(name))
            if await self._acquired(lease):
                if self._is_stopping():
                    await lease.release()
                    break
                self._begin(config, lease)
            elif lease.held_by is not None:
                self._restarts.discard(name)  # somebody else reads it
                lapses_ms = min(lapses_ms, lease.held_by.remaining_ms)
        return lapses_ms

    async def _acquired(self, lease: Lease) -> bool:
        try:
            return await lease.acquire()
        except StateUnavailable as error:
            # Its node of a Cluster may be away. Those of other queues may not.
            log.debug("%s", error)
            return False

    def _is_stopping(self) -> bool:
        return self._stopping

    def _lease_of(self, queue: str) -> Lease:
        parts = self._parts
        key = QueueKeys(queue).owner
        return Lease(client=parts.client, key=key, owner=parts.name, ttl_ms=self._ttl_ms, clock=parts.clock)

    # One queue ------------------------------------------------------------------------------------

    def _begin(self, config: QueueConfig, lease: Lease) -> None:
        one = self.owned[config.name] = Owned(
            parts=self._parts, config=config, lease=lease, open_source=self._open_source, patience_s=self._patience_s
        )
        one.task = asyncio.get_running_loop().create_task(self._work(one))
        one.task.add_done_callback(self._on_crash)

    async def _work(self, one: Owned) -> None:
        name = one.config.name
        try:
            if not await one.open():
                return
            self._setbacks.opened(name)
            self._restarts.discard(name)
            if not one.lease.held:
                raise LeaseLapsed(name)
            duties = await one.work(self.counts.setdefault(name, Counter()))
            if self._stopping and one.lease.held and await self._is_last():
                await duties.return_all()
            if duties.drained:
                await self._parts.registry.forget_queue(name)
                del self.counts[name]
        except LeaseLapsed as error:
            log.warning("%s", error)
        except Fenced as error:  # or Disordered, or Forgotten
            log.warning("queue %s: %s", name, error)
            if one.lease.held:
                # It is ours, yet a pool remembers a newer owner, from before Redis forgot and its clock stepped back.
                one.lease.above = max(one.lease.above, error.epoch, key=int)
                self._setbacks.fenced(name)
        except FleetError as error:
            # The next take-over, ours or another's, finds whatever was half done.
            if self._setbacks.failed(name, str(error)):
                # An outage of Redis is logged once, and known by its error.
                log.error("queue %s: %s", name, error if isinstance(error, StateError) else unnamed(name, str(error)))
            self._warn_of(one, error)
        finally:
            one.closing = True
            self.lost["queue_leases_lost"] += not one.lease.held
            await one.let_go()
            del self.owned[name]
            self.on_let_go()

    def _warn_of(self, one: Owned, error: FleetError) -> None:
        name = one.config.name
        text = f"queue {name}: {unnamed(name, str(error))}"
        if name in self._restarts and not one.restarting:
            self._parts.alarms.add("CONSUMER_RESTART_FAILED", "CRITICAL", text, logged=True)
        elif not isinstance(error, StateError):
            self._parts.alarms.add("QUEUE_UNAVAILABLE", "ERROR", text, logged=True)

    async def _is_last(self) -> bool:
        return not coordinators_of(await self._parts.registry.alive()) - {self._parts.name}
