"""Which purge of a queue of the SQS door began a moment ago: others wait, and one that was cut off is finished."""

from __future__ import annotations

from fleet.state.connect import Client, translated
from fleet.state.keys import OwnQueueKeys

FINISHED_WITHIN_MS = 60_000
"""For how long one is known of a queue that may be purged at any time."""


async def begin(client: Client, queue: str, purge: str, *, hold_off_ms: int) -> bool:
    """False if another one began within that time. 0: nobody has to wait."""
    key = OwnQueueKeys(queue).purging
    with translated():
        return bool(await client.set(key, purge, nx=bool(hold_off_ms), px=hold_off_ms or FINISHED_WITHIN_MS))


async def begun(client: Client, queue: str) -> str:
    """It may be done already."""
    with translated():
        return await client.get(OwnQueueKeys(queue).purging) or ""
