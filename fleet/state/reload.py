"""Asking the syncer to read its sources now."""

from __future__ import annotations

from fleet.state.connect import Client, translated
from fleet.state.keys import CHANGED_CHANNEL

RELOAD = "reload"
"""On `fleet:changed`. Others who hear it look for a new revision, find none, and mind nothing."""


async def request_reload(client: Client) -> None:
    with translated():
        await client.publish(CHANGED_CHANNEL, RELOAD)
