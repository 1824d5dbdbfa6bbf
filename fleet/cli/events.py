"""Commands for events and their subscriptions."""

from __future__ import annotations

from typing import BinaryIO

import click

from fleet.cli.base import Group, example, json_option
from fleet.cli.store import file_option, limit_option, progress, store_of, tell
from fleet.cli.table import show_json, show_table
from fleet.errors import FleetError, InvalidJob
from fleet.jobs.add import add as add_lines
from fleet.jobs.read import read_event, read_lines, subscription
from fleet.jobs.records import MODES
from fleet.jobs.shown import event_json, moment, subscription_json


@click.group(
    cls=Group,
    epilog=example(
        "fleet events subscribe --pattern 'order:*' --target http://127.0.0.1:8421/fast",
        "fleet events add --file events.ndjson",
    ),
)
def events() -> None:
    """Events, and subscriptions that make a dispatch job of each event that fits."""


@events.command(
    epilog=example(
        "fleet events add --file events.ndjson",
        'echo \'{"type":"order:created","group":"order-17","payload":{"order":17}}\' | fleet events add --file -',
    )
)
@file_option
@json_option
@click.pass_context
def add(context: click.Context, file: BinaryIO, as_json: bool) -> int:
    """Add events. A line: {"id"?,"type":"a:b:c","group"?,"payload"}.

    An event that is refused is reported with its line; the others go on, and the exit code is 1.
    """
    with store_of(context) as store, progress() as show:
        total = add_lines(read_lines(file, read_event), store.add_events, on_progress=show)
    return tell(total, as_json=as_json)


@events.command(
    epilog=example(
        "fleet events subscribe --pattern 'order:*:added' --target https://example.com/hook --mode BLOCK_ON_ERROR",
    )
)
@click.option("--pattern", required=True, metavar="P", help="Words separated by colons; * is any one word.")
@click.option("--target", required=True, metavar="URL", help="Where a job for each such event is delivered.")
@click.option("--mode", type=click.Choice(MODES), default="NEXT_ON_ERROR", show_default=True)
@click.option("--pool", metavar="CODE", help="Default: DEFAULT-POOL.")
@click.option("--name", help="Default: made from pattern and target.")
@click.pass_context
def subscribe(context: click.Context, pattern: str, target: str, mode: str, pool: str | None, name: str | None) -> None:
    """Make a dispatch job of every event whose type fits, from now on."""
    try:
        wanted = subscription(pattern=pattern, target=target, mode_=mode, pool=pool, name=name)
    except InvalidJob as error:
        raise click.UsageError(str(error), context) from None
    with store_of(context) as store:
        if store.subscribe(wanted):
            click.echo(f"Subscribed as {wanted.name}.")
            return
        there = next((one for one in store.subscriptions() if one.name == wanted.name), None)
    same = there is not None and (there.pattern, there.target_url, there.mode, there.pool) == (
        wanted.pattern, wanted.target_url, wanted.mode, wanted.pool,
    )  # fmt: skip
    if not same:
        raise FleetError(f"there is another subscription {wanted.name}: unsubscribe it, or give this one a --name")
    click.echo(f"Already subscribed as {wanted.name}.")


@events.command(epilog=example("fleet events unsubscribe order.any-1f2e3d4c"))
@click.argument("name")
@click.pass_context
def unsubscribe(context: click.Context, name: str) -> None:
    """Stop making jobs for a subscription. Those that were made are delivered."""
    with store_of(context) as store:
        if not store.unsubscribe(name):
            raise FleetError(f"there is no subscription {name}")
    click.echo(f"{name} is unsubscribed.")


@events.command(name="list", epilog=example("fleet events list", "fleet events list --subscriptions --json"))
@click.option("--subscriptions", is_flag=True, help="List the subscriptions instead.")
@click.option("--group", help="Only events of that group.")
@limit_option
@json_option
@click.pass_context
def list_(context: click.Context, subscriptions: bool, group: str | None, limit: int, as_json: bool) -> None:
    """List events, the newest first, or subscriptions."""
    more = False
    with store_of(context) as store:
        if subscriptions:
            shown = [subscription_json(one) for one in store.subscriptions()]
            rows = [[row[name] for name in ("name", "pattern", "targetUrl", "mode", "poolCode")] for row in shown]
            titles = ("NAME", "PATTERN", "TARGET", "MODE", "POOL")
        else:
            found = store.events(group=group, limit=limit and limit + 1)
            more = bool(limit) and len(found) > limit
            found = found[:limit] if more else found
            shown = [event_json(one) for one in found]
            rows = [[one.id, one.type, one.msg_group, moment(one.created_ms), bool(one.fanned_out)] for one in found]
            titles = ("EVENT", "TYPE", "GROUP", "CREATED", "FANNED OUT")
    if as_json:
        show_json(shown)
        return
    what = "subscription" if subscriptions else "event"
    filtered = group is not None and not subscriptions
    show_table(titles, rows, empty=f"No {what} matches." if filtered else f"There are no {what}s.")
    if more:
        click.echo(f"The first {limit}; --limit 0 shows all.")


commands = (events,)
