"""Which of several syncers publishes. The others stand by, and say how their configuration differs.

The lead is a lease, and each publication carries its epoch. So a syncer that was stopped, and that another has
followed meanwhile, publishes nothing when it wakes. Settings of an older revision are refused by the pools themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from coordinator.syncer.publish import RevisionPublisher
from coordinator.syncer.sync import Published
from fleet.clock import Clock
from fleet.config.difference import difference
from fleet.config.router import RouterConfig, parse_router_config
from fleet.errors import Fenced, InvalidConfig, StateError
from fleet.lease import Lease
from fleet.state.registry import Registry
from fleet.waiting import happens

log = logging.getLogger("fleet.syncer")

CATEGORY = "CONFIG_DIFFERS"
_ROUNDS = 10
"""In a lease's time. A dead leader's place is taken this soon after its lease lapsed."""


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
        """`on_lead`: called when we lead after another. What we have read may be older than what that one read."""
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
        """The last configuration of ours that was compared, and the revision that it was compared with."""
        self._differs_since_ms = 0.0
        self._warned = ""
        self.differs = ""
        """How our configuration differs from the one in force, while another leads."""

    @property
    def leads(self) -> bool:
        return self._lease.held

    @property
    def leader(self) -> str:
        """The other syncer that led when we last looked; '' for none."""
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
        """Put it in force if we lead; else compare it with what is in force.

        `is_fresh`: whether it was read since we lead. One that was not is put in force only if there is none yet:
        whoever led before us may have read a newer one.
        """
        for _ in range(2):
            if not await self.keep():
                break
            # Asked only now: we may have taken the lead just above.
            if not is_fresh() and (revision := await self._registry.revision()):
                return Published(revision, in_force=False)
            try:
                return Published(await self._publisher.publish(config, epoch=self._lease.epoch))
            except Fenced:
                # Another leads by now, or all of Redis is gone and nobody leads. Look again.
                self._lease.drop()
        return Published(await self._compare(config), in_force=False)

    async def keep(self) -> bool:
        """Renew the lead, or take it if it is free. Returns whether we have it."""
        # One at a time: a second grant would void the first.
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
        # If we led before, another may have led since without our seeing it.
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
        """See how ours differs from the configuration in force. Returns the revision of that; '' for none."""
        revision = await self._registry.revision()
        if revision and self._compared != (config, revision):
            found = await self._registry.config()
            if found is not None:
                revision, differed = found.revision, self.differs
                self._compared = config, revision
                try:
                    self.differs = difference(config, parse_router_config(found.body))
                except InvalidConfig as error:
                    # Its syncer may be of a newer release and know more than we do.
                    self.differs = f"what is in force cannot be read here ({error})"
                if not differed:
                    self._differs_since_ms = self._clock.boot_ms()
                elif not self.differs:
                    log.info("our configuration is the one in force again")
        await self._tell()
        return revision

    async def _tell(self) -> None:
        """Warn once of a difference that lasts: people may mean the configuration that is not in force."""
        if not self.differs:
            self._warned = ""
        # Within this time we follow a leader that died, and a file that is being replaced on every machine is the same
        # on all of them.
        elif self.differs != self._warned and self._clock.boot_ms() - self._differs_since_ms > self._ttl_ms:
            self._warned = self.differs
            who = self.leader or "the syncer that leads"
            text = f"{self._name} stands by and has another configuration than {who}, whose is in force: {self.differs}"
            await self._warn(CATEGORY, f"{text} (`fleet config show` has it, `fleet doctor` compares)")
