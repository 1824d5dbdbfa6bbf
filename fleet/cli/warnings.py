"""`fleet warnings`: what somebody should look at, and saying that somebody has."""

from __future__ import annotations

import time

import click

from fleet.cli.base import Group, ask, example, json_option, settings_of
from fleet.cli.reading import reading
from fleet.cli.table import show_json, show_table
from fleet.errors import FleetError
from fleet.state.connect import connected
from fleet.state.warnings import MOST, Warnings, WarningView
from fleet.words import span


@click.group(
    cls=Group,
    invoke_without_command=True,
    epilog=example("fleet warnings", "fleet warnings --all --json", "fleet warnings ack --all"),
)
@click.option("--all", "also_acknowledged", is_flag=True, help="Acknowledged ones too.")
@json_option
@click.pass_context
def warnings(context: click.Context, also_acknowledged: bool, as_json: bool) -> None:
    """List the warnings that nobody has acknowledged, the newest first.

    A warning that is raised again is counted, not repeated. Eight hours after the last time it goes away by itself.
    """
    if context.invoked_subcommand is not None:
        return

    async def question() -> list[WarningView]:
        async with reading(context) as client:
            return await Warnings(client).list(unacknowledged=not also_acknowledged, limit=MOST)

    found = ask(question())
    if as_json:
        show_json([warning.to_json() for warning in found])
        return
    now_s = time.time()
    titles = ("ID", "SEVERITY", "CATEGORY", "AGO", "TIMES", "SOURCE", "SEEN", "MESSAGE")
    show_table(
        titles,
        [
            (
                warning.id,
                warning.severity,
                warning.category,
                span(max(0.0, now_s - warning.last_ms / 1000)),
                warning.count,
                warning.source,
                warning.acknowledged,
                warning.message,
            )
            for warning in found
        ],
        empty="No warnings.",
        ends_in_prose=True,
    )


@warnings.command(epilog=example("fleet warnings ack 0643ecb4cbd1f7a90c", "fleet warnings ack --all"))
@click.argument("id_", metavar="ID", required=False)
@click.option("--all", "every", is_flag=True, help="All of them.")
@click.pass_context
def ack(context: click.Context, id_: str | None, every: bool) -> None:
    """Acknowledge a warning, or all: somebody has seen it. It is listed with --all until it goes."""
    if (id_ is None) != every:
        raise click.UsageError("Give an ID, or --all.", context)

    async def question() -> int:
        async with connected(settings_of(context).redis.url) as client:
            store = Warnings(client)
            if id_ is None:
                return await store.acknowledge_all()
            if not await store.acknowledge(id_):
                raise FleetError(f"there is no warning {id_}")
            return 1

    click.echo(f"{ask(question())} acknowledged")


commands = (warnings,)
