"""Commands for the router configuration in force."""

from __future__ import annotations

import json
import time

import click

from fleet.cli.base import ask, example, json_option
from fleet.cli.check import config
from fleet.cli.pool import fleet_of
from fleet.cli.table import show_json
from fleet.config import parse_router_config, redacted
from fleet.errors import FleetError
from fleet.explanation import iso
from fleet.state.registry import ConfigRevision, Registry
from fleet.state.reload import request_reload
from fleet.status import span


@config.command(epilog=example("fleet config show", "fleet config show --json | jq .config.processingPools"))
@json_option
@click.pass_context
def show(context: click.Context, as_json: bool) -> None:
    """Show the configuration in force, without its secrets."""

    async def question() -> ConfigRevision | None:
        async with fleet_of(context) as client:
            return await Registry(client).config()

    found = ask(question())
    if found is None:
        raise FleetError("no configuration is in force: start `fleet syncer`, or `fleet up`")
    document = json.loads(redacted(parse_router_config(found.body)))
    if as_json:
        show_json({"revision": found.revision, "checkedAt": iso(found.checked_ms), "config": document})
        return
    # The revision goes where it is in nobody's way who keeps the JSON.
    ago = span(max(0.0, time.time() - found.checked_ms / 1000))
    click.echo(f"Revision {found.revision}, checked {ago} ago", err=True)
    show_json(document)


@config.command(epilog=example("fleet config reload"))
@click.pass_context
def reload(context: click.Context) -> None:
    """Have every syncer read its sources now.

    Files are watched and need none; a URL is otherwise read at each sync interval.
    """

    async def change() -> int:
        async with fleet_of(context) as client:
            registry = Registry(client)
            syncers = len([one for one in await registry.processes() if one.get("role") == "syncer"])
            await request_reload(client)
            return syncers

    syncers = ask(change())
    if not syncers:
        raise FleetError("no syncer runs: nobody reads the configuration")
    click.echo(f"{syncers} {'syncer reads' if syncers == 1 else 'syncers read'} the configuration anew.")


commands = (config,)
