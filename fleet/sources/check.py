"""Whether a queue can be read. Finding out takes nothing from the queue and creates nothing."""

from __future__ import annotations

import asyncio
import logging
import math

from fleet.config.router import QueueConfig
from fleet.errors import FleetError, InvalidConfig
from fleet.sources.base import Checked
from fleet.sources.open import OpenSource, adapter_for, open_source
from fleet.words import unnamed

log = logging.getLogger("fleet.sources")

WITHIN_S = 5.0


def refusal_of(queue: QueueConfig, *, open_source: OpenSource = open_source) -> str:
    """Why no adapter takes it as it is configured; '' if one does. Nothing is contacted."""
    try:
        open_source(queue.name, queue.uri, queue.visibility_timeout_s * 1000, connections=queue.connections)
    except InvalidConfig as error:
        return unnamed(queue.name, str(error))
    return ""


def haste_of(queue: QueueConfig, ttl_ms: int) -> str:
    """Why its visibility timeout is too short for a fleet whose leases last so long; '' if it is not."""
    if queue.visibility_timeout_s * 1000 >= 2 * ttl_ms:
        return ""
    adapter = adapter_for(queue.uri)
    if adapter is not None and not adapter.has_visibility_timeout:
        return ""
    return (
        f"visibilityTimeout is {queue.visibility_timeout_s} s, less than twice lease.ttl_ms ({ttl_ms / 1000:g} s):"
        " it is extended at half of it, and after a crash of the coordinator nobody extends it for as long as a lease"
        " lasts. Messages that are under way are shown again then;"
        f" set it to {math.ceil(2 * ttl_ms / 1000)} s or more"
    )


async def problem_of(queue: QueueConfig, *, open_source: OpenSource = open_source, within_s: float = WITHIN_S) -> str:
    """Why it cannot be read from here at the moment; '' if it can."""
    try:
        source = open_source(queue.name, queue.uri, queue.visibility_timeout_s * 1000, connections=queue.connections)
        try:
            async with asyncio.timeout(within_s):
                await (source.check() if isinstance(source, Checked) else source.open())
        finally:
            async with asyncio.timeout(within_s):
                await source.close()
    except TimeoutError:
        return f"it could not be opened within {within_s:g} s"
    except FleetError as error:
        return unnamed(queue.name, str(error))
    except Exception as error:
        # There is no full list of what a broker's library may raise, and its message may quote a password.
        log.debug("queue %s", queue.name, exc_info=error)
        return f"it cannot be opened ({type(error).__name__})"
    return ""
