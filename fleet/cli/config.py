"""Commands for the router configuration in force."""

from __future__ import annotations

import json
import time

import click

from fleet.cli.base import ask, example, json_option
from fleet.cli.check import config
from fleet.cli.reading import fleet_of, reading
from fleet.cli.table import show_json
from fleet.config.router import parse_router_config, redacted
from fleet.errors import FleetError
from fleet.state.registry import ConfigRevision, Registry
from fleet.state.reload import Reloaded
from fleet.state.reload import reload as reload_now
from fleet.words import span, utc


@config.command(epilog=example("fleet config show", "fleet config show --json | jq .config.processingPools"))
@json_option
@click.pass_context
def show(context: click.Context, as_json: bool) -> None:
    """Show the configuration in force, without its secrets."""

    async def question() -> ConfigRevision | None:
        async with reading(context) as client:
            return await Registry(client).config()

    found = ask(question())
    if found is None:
        raise FleetError("no configuration is in force: start `fleet syncer`, or `fleet up`")
    document = json.loads(redacted(parse_router_config(found.body)))
    if as_json:
        show_json({"revision": found.revision, "checkedAt": utc(found.checked_ms), "config": document})
        return
    # The revision goes to stderr, so that stdout is the JSON alone.
    ago = span(max(0.0, time.time() - found.checked_ms / 1000))
    click.echo(f"Revision {found.revision}, checked {ago} ago", err=True)
    show_json(document)


@config.command(epilog=example("fleet config reload"))
@click.pass_context
def reload(context: click.Context) -> None:
    """Have the syncer that leads read its sources now, and say what came of it.

    Files are watched and need no reload; a URL is otherwise read at each sync interval. Exits with 1 and the reason
    if a source could not be read or applied: then the last good configuration stays in force.
    """

    async def change() -> Reloaded:
        async with fleet_of(context) as client:
            return await reload_now(client)

    done = ask(change())
    if done.error:
        raise FleetError(f"the last good configuration stays: {done.error}")
    if not done.syncer:
        raise FleetError("no syncer is running: nobody reads the configuration")
    if not done.answered:
        raise FleetError(f"no answer from {done.syncer}, its log may say why")
    click.echo(f"{done.syncer} has read the configuration anew.")


commands = (config,)
