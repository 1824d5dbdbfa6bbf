"""Brings what was tracked to its pools, side by side: a pool that does not answer is late, and holds up no other."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from coordinator.answers import PATIENCE_S, SHORT_PATIENCE_S
from coordinator.late import LatePools
from coordinator.submit import Portion, Submitter, Untaken
from fleet.errors import StateUnavailable
from fleet.waiting import end

log = logging.getLogger("fleet.coordinator")


class Bringer:
    """Brings the batches of one queue while its lease is held."""

    def __init__(self, *, submitter: Submitter, late: LatePools, ours: Callable[[], bool]) -> None:
        self._submitter = submitter
        self._late = late
        self._ours = ours

    async def bring(self, by_pool: dict[str, Portion], batch_id: str) -> Untaken:
        """Returns what the pools that answered did not take."""
        calling: dict[str, asyncio.Task[Untaken]] = {}
        for code, portion in by_pool.items():
            if code in self._late:
                self._late.wait(code, portion, batch_id)
            else:
                calling[code] = asyncio.create_task(self._submitter.submit(code, portion, batch_id))
        if not calling:
            return []
        began_s = time.monotonic()
        silent = self._late.is_known_silent(began_s)
        try:
            await asyncio.wait(calling.values(), timeout=SHORT_PATIENCE_S if silent else PATIENCE_S)
            ours = self._ours()
            if not ours:
                await asyncio.wait(calling.values())  # nobody will be there to catch up later
        except asyncio.CancelledError:
            await end(calling.values())
            raise
        untaken: Untaken = []
        errors: list[BaseException] = []
        for code, call in calling.items():
            error = call.exception() if call.done() else None
            if ours and (not call.done() or isinstance(error, StateUnavailable)):
                self._late.fell_silent(code, began_s, call, by_pool[code], batch_id)
            elif error is not None:
                errors.append(error)
            else:
                untaken += call.result()
        if errors:
            raise errors[0]
        return untaken

    async def expect_no_more(self, by_pool: dict[str, list[tuple[str, str, str, str]]]) -> None:
        """These copies were acked (`Pool.expect_no_more`).

        A pool that does not hear of it waits for them in vain, for twice the grace of what is away.
        """
        calls = [
            asyncio.create_task(self._expect_no_more(code, messages))
            for code, messages in by_pool.items()
            if code not in self._late
        ]
        if not calls:
            return
        try:
            done, pending = await asyncio.wait(calls, timeout=PATIENCE_S)
        except asyncio.CancelledError:
            await end(calls)
            raise
        self._late.see_to_the_end(pending)
        for call in done:
            call.result()

    async def _expect_no_more(self, code: str, messages: list[tuple[str, str, str, str]]) -> None:
        try:
            await self._submitter.pool(code).expect_no_more(messages)
        except StateUnavailable as error:
            log.warning("pool %s does not answer: %s", code, error)
