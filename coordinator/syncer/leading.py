"""Which of several syncers publishes. The others stand by, and say what they would do otherwise.

The lead is a lease. Each publication carries its epoch: a syncer that was stopped, and has been followed by another
meanwhile, publishes nothing when it wakes. The pools of an older revision are refused by the pools themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from coordinator.syncer.publish import RevisionPublisher
from coordinator.syncer.sync import Published
from fleet.clock import Clock
from fleet.config import RouterConfig, parse_router_config
from fleet.config_difference import difference
from fleet.errors import Fenced, InvalidConfig, StateError
from fleet.lease import Lease
from fleet.state.registry import Registry
from fleet.waiting import happens

log = logging.getLogger("fleet.syncer")

CATEGORY = "CONFIG_DIFFERS"
_ROUNDS = 10
"""A lease's time holds this many looks: a dead leader's place is taken so soon after it lapsed."""


class Leading:
    """Holds the lead over the configuration, or waits for it."""

    def __init__(
        self,
        *,
        name: str,
        lease: Lease,
        publisher: RevisionPublisher,
        registry: Registry,
        clock: Clock,
        ttl_ms: int,
        warn: Callable[[str, str], Awaitable[None]],
        on_lead: Callable[[], None],
    ) -> None:
        """`on_lead`: the lead was taken from another; what was read before may be older than what that one read."""
        self._name = name
        self._lease = lease
        self._publisher = publisher
        self._registry = registry
        self._clock = clock
        self._ttl_ms = ttl_ms
        self._warn = warn
        self._on_lead = on_lead
        self._look = asyncio.Event()
        self._asking = asyncio.Lock()
        self._has_led = False
        self._compared: tuple[RouterConfig, str] | None = None
        """What is read here, and the revision that it was compared with."""
        self._differs_since_ms = 0.0
        self._warned = ""
        self.differs = ""
        """In what our configuration differs from the one in force, while another leads."""

    @property
    def leads(self) -> bool:
        return self._lease.held

    @property
    def leader(self) -> str:
        """The other syncer that leads, as of our last look; '' for none."""
        return self._lease.held_by.owner if self._lease.held_by is not None else ""

    def look(self) -> None:
        """The lead may be free."""
        self._look.set()

    async def run(self) -> None:
        """Keep the lead, or take it as soon as it is free."""
        while True:
            self._look.clear()
            pause_ms = await self._round()
            await happens(self._look, within_s=pause_ms / 1000)

    async def release(self) -> None:
        """Give the lead back, so that another need not wait."""
        try:
            await self._lease.release()
        except StateError as error:
            log.debug("lead not given back: %s", error)

    async def publish(self, config: RouterConfig, *, is_fresh: Callable[[], bool] = lambda: True) -> Published:
        """Put it in place if we lead; else compare it with what is.

        `is_fresh`: whether it was read since we lead. One that was not is put in place only where there is none: who
        led before us may have read a newer one.
        """
        for _ in range(2):
            if not await self.keep():
                break
            # Asked now: the lead may have been taken just above.
            if not is_fresh() and (revision := await self._registry.revision()):
                return Published(revision, in_force=False)
            try:
                return Published(await self._publisher.publish(config, epoch=self._lease.epoch))
            except Fenced:
                # Followed by another; or all of Redis is gone, and nobody leads. Look anew.
                self._lease.drop()
        return Published(await self._compare(config), in_force=False)

    async def keep(self) -> bool:
        """Renew the lead, or take it if it is free. Whether we have it."""
        # One at a time: a second grant would make the first one void.
        async with self._asking:
            return await self._keep()

    async def _keep(self) -> bool:
        lease, led, before = self._lease, bool(self._lease.epoch), self.leader
        if lease.held and not lease.ageing:
            return True
        if lease.held and await lease.renew():
            return True
        if not await lease.acquire():
            if led or not before:
                log.info("%s leads, we stand by", self.leader)
            return False
        if before:
            log.info("we lead the syncers, after %s", before)
        self._compared, self.differs, self._warned = None, "", ""
        # Another may have led since we did, also where we have not seen it.
        if before or self._has_led:
            self._on_lead()
        self._has_led = True
        return True

    async def _round(self) -> float:
        pause_ms = self._ttl_ms / _ROUNDS
        try:
            if not await self.keep() and self._lease.held_by is not None:
                pause_ms = min(pause_ms, self._lease.held_by.remaining_ms + 5)
        except StateError as error:
            self._lease.drop()
            log.debug("lead: %s", error)
        return max(pause_ms, 10.0)

    async def _compare(self, config: RouterConfig) -> str:
        """See whether what stands by differs from what is in force. Returns the revision of that, '' for none."""
        revision = await self._registry.revision()
        if revision and self._compared != (config, revision):
            found = await self._registry.config()
            if found is not None:
                revision, differed = found.revision, self.differs
                self._compared = config, revision
                try:
                    self.differs = difference(config, parse_router_config(found.body))
                except InvalidConfig as error:
                    # Of a newer release, which may know more than we do.
                    self.differs = f"what is in force cannot be read here ({error})"
                if not differed:
                    self._differs_since_ms = self._clock.boot_ms()
                elif not self.differs:
                    log.info("our configuration is the one in force again")
        await self._tell()
        return revision

    async def _tell(self) -> None:
        """Warn, once, of a difference that lasts: the configuration that is not in force may be the one people mean."""
        if not self.differs:
            self._warned = ""
        # A leader that died is followed by us within this time, and a file that is being replaced everywhere is the
        # same everywhere by then.
        elif self.differs != self._warned and self._clock.boot_ms() - self._differs_since_ms > self._ttl_ms:
            self._warned = self.differs
            who = self.leader or "the syncer that leads"
            text = f"{self._name} stands by and has another configuration than {who}, whose is in force: {self.differs}"
            await self._warn(CATEGORY, f"{text} (`fleet config show` has it, `fleet doctor` compares)")
