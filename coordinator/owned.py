"""One queue of ours, from the grant of its lease to its end."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec

from coordinator.duties import Duties, found_in_disorder
from coordinator.parts import Parts
from fleet.config.router import QueueConfig
from fleet.errors import FleetError, SourceUnavailable, StateError
from fleet.lease import Lease
from fleet.sources.base import Source
from fleet.sources.open import OpenSource
from fleet.state.queue import Queue

log = logging.getLogger("fleet.coordinator")

_encode = msgspec.json.Encoder().encode


class Owned:
    def __init__(
        self, *, parts: Parts, config: QueueConfig, lease: Lease, open_source: OpenSource, patience_s: float
    ) -> None:
        """`patience_s`: how long its source may take to open or to close."""
        self._parts = parts
        self.config = config
        self.lease = lease
        self._open_source = open_source
        self._patience_s = patience_s
        self._source: Source | None = None
        self.duties: Duties | None = None
        self.task: asyncio.Task[None] | None = None
        self.restarting = False
        self.closing = False
        self._renewal: asyncio.Task[None] | None = None

    async def open(self) -> bool:
        """Open its source. False if it is no longer configured and nothing is left to acknowledge."""
        config, name = self.config, self.config.name
        self._source = self._open_source(
            name, config.uri, config.visibility_timeout_s * 1000, connections=config.connections
        )
        if config.draining and not await self._has_work():
            await self._parts.registry.forget_queue(name)
            return False
        await self._in_time(self._source.open(), f"queue {name} did not open")
        await self._parts.registry.remember_queue(name, _encode(replace(config, draining=False)))
        return True

    async def work(self, counts: Counter[str]) -> Duties:
        """Do what an owner does, until stopped or until an error says that the queue is not ours any more."""
        assert self._source is not None
        self.duties = Duties(
            parts=self._parts, config=self.config, source=self._source, lease=self.lease, counts=counts
        )
        log.info("%s owns queue %s", self._parts.name, self.config.name)
        await self.duties.run()
        return self.duties

    async def let_go(self) -> None:
        name, source = self.config.name, self._source
        try:
            if source is not None:
                await self._in_time(source.close(), f"queue {name} did not close")
            if source is not None and self._leaves_disorder(source):
                # Given back, the queue is polled at once. If the lease lapses, the next owner waits for what is out.
                log.info(
                    "queue %s: its lease is left to lapse, because not all messages that it gave out are accounted for",
                    name,
                )
                self.lease.drop()
            else:
                await self.lease.release()
        except FleetError as error:
            log.warning("%s", error)
            self.lease.drop()

    def _leaves_disorder(self, source: Source) -> bool:
        """If we never came to look, we leave the queue as we found it."""
        return self.duties.in_disorder if self.duties is not None else found_in_disorder(source, self.lease)

    def stop(self) -> None:
        if self.duties is not None:
            self.duties.stop()

    def abandon(self) -> None:
        """Cancel it: it did not stop by itself."""
        if self.task is not None and not self.closing:
            self.task.cancel()

    def keep(self, on_crash: Callable[[asyncio.Task[None]], None]) -> None:
        """Renew its lease when it is time to."""
        if self.lease.epoch and self.lease.ageing and self._renewal is None:
            self._renewal = asyncio.get_running_loop().create_task(self._renew())
            self._renewal.add_done_callback(on_crash)

    async def _renew(self) -> None:
        name = self.config.name
        try:
            kept = await self.lease.renew()
        except StateError as error:
            # It may still be ours, until its deadline.
            log.warning("queue %s: its lease cannot be renewed: %s", name, error)
            kept = self.lease.held
        finally:
            self._renewal = None
        if not kept and not self.closing:
            log.warning("lost the lease on queue %s", name)
            self.stop()

    async def _in_time(self, call: Awaitable[None], text: str) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                await call
        except TimeoutError:
            raise SourceUnavailable(f"{text} within {self._patience_s:g} s") from None

    async def _has_work(self) -> bool:
        queue = Queue(self._parts.client, self.config.name)
        return bool(await queue.tracked_count() + await queue.settled_count())
