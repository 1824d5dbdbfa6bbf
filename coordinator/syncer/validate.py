"""Looks at every queue of a new configuration, beside the sync: each problem is a warning, and nobody waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from fleet.config.router import QueueConfig, RouterConfig
from fleet.errors import StateError
from fleet.sources.check import problem_of

log = logging.getLogger("fleet.syncer")

CATEGORY = "QUEUE_VALIDATION"
_AT_ONCE = 8


class Validator:
    """If revisions come faster than they can be looked at, the last one counts."""

    def __init__(
        self,
        *,
        warn: Callable[[str, str], Awaitable[None]],
        problem_of: Callable[[QueueConfig], Awaitable[str]] = problem_of,
        remark_on: Callable[[QueueConfig], str] = lambda _: "",
    ) -> None:
        """`warn` gets the category and the text; `remark_on` says what is odd about a queue that can be read."""
        self._warn = warn
        self._problem_of = problem_of
        self._remark_on = remark_on
        self._due: RouterConfig | None = None
        self._wake = asyncio.Event()

    def look_at(self, config: RouterConfig) -> None:
        self._due = config
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._due is not None:
                config, self._due = self._due, None
                await self._look(config)

    async def _look(self, config: RouterConfig) -> None:
        gate = asyncio.Semaphore(_AT_ONCE)
        await asyncio.gather(*(self._look_at(queue, gate) for queue in config.queues))

    async def _look_at(self, queue: QueueConfig, gate: asyncio.Semaphore) -> None:
        async with gate:
            if self._due is not None:
                return
            for problem in (self._remark_on(queue), await self._problem_of(queue)):
                if problem:
                    await self._tell(f"queue {queue.name}: {problem}")

    async def _tell(self, text: str) -> None:
        try:
            await self._warn(CATEGORY, text)
        except StateError as error:
            log.warning("%s not stored (%s): %s", CATEGORY, error, text)
