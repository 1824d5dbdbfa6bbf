"""What the broker counts: of topics and of subscriptions, on its way into the totals of the fleet."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator

from fleet.errors import StateError
from fleet.metrics.counters import Counters
from fleet.state.connect import Client
from fleet.state.totals import Tally
from fleet.waiting import end

log = logging.getLogger("fleet.broker")

TOPIC, SUBSCRIPTION = "topic", "subscription"
TELL_EVERY_S = 5.0


@contextlib.asynccontextmanager
async def told(client: Client, counters: Counters) -> AsyncIterator[None]:
    """For a process whose heartbeat does not tell them: every few seconds what is new, and the rest at the end."""
    tally = Tally(client, f"broker-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}", counters)
    telling = asyncio.get_running_loop().create_task(_tell(tally))
    try:
        yield
    finally:
        await end([telling])
        try:
            await tally.leave(now_ms=time.monotonic() * 1000)
        except StateError as error:
            log.debug("what was counted last is not told: %s", error)


async def _tell(tally: Tally) -> None:
    while True:
        await asyncio.sleep(TELL_EVERY_S)
        try:
            await tally.tell_all(now_ms=time.monotonic() * 1000)
        except StateError as error:
            log.debug("counters not told: %s", error)
