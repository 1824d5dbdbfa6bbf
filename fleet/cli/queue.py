"""Commands that change one queue by hand."""

from __future__ import annotations

import click

from fleet.cli.base import Group, ask, example, json_option
from fleet.cli.reading import fleet_of
from fleet.cli.table import show_json
from fleet.errors import FleetError
from fleet.kinds import kind_of
from fleet.operate import views
from fleet.operate.send import uri_of_queue
from fleet.sources.own import address as own
from fleet.sources.own.door import address as door
from fleet.sources.own.door.queue import DoorQueue
from fleet.state.connect import Client
from fleet.state.own_queue import OwnQueue
from fleet.words import number


@click.group(cls=Group, epilog=example("fleet queue purge orders --yes"))
def queue() -> None:
    """Change one queue by hand."""


@queue.command(epilog=example("fleet queue purge orders --yes", "fleet queue purge fleet://orders --yes --json"))
@click.argument("name")
@click.option("--yes", is_flag=True, help="Confirm: they are gone for good.")
@json_option
@click.pass_context
def purge(context: click.Context, name: str, yes: bool, as_json: bool) -> int:
    """Throw away what a queue of our own holds.

    NAME is the name of a configured queue, fleet://NAME, or fleet://sqs/QUEUE. Everything that is there when the purge
    begins goes, also delayed messages and those that are out; what is sent meanwhile stays. What coordinators have
    taken in is still delivered. Purge other kinds of queues with their broker's own tools.

    Dedup ids are remembered: what is sent again under one within five minutes is accepted and dropped.
    """

    async def change() -> int:
        async with fleet_of(context) as client:
            uri = await _uri_of(client, name)
            if door.is_of_door(uri):
                of_door = DoorQueue(client, door.parse_address(uri))
                depth = await of_door.depth()
                return await of_door.purge() if yes else depth.waiting + depth.invisible
            found = OwnQueue(client, own.name_of(uri))
            return await found.purge() if yes else (await found.contents()).messages

    count = ask(change())
    if not yes:
        raise click.UsageError(f"{number(count, 'message')} of {name} would be gone for good; add --yes.", context)
    if as_json:
        show_json({"queue": name, "purged": count})
    else:
        click.echo(f"{number(count, 'message is', 'messages are')} gone.")
    return 0


async def _uri_of(client: Client, name: str) -> str:
    uri = name if ":" in name else uri_of_queue((await views.configuration(client))[1], name)[1]
    if kind_of(uri) == "topics":
        raise FleetError(f"{name} is not a queue of our own: see `fleet subscriptions seek` and `remove`")
    if not own.is_own(uri) and not door.is_of_door(uri):
        raise FleetError(
            f"{name} is not a queue of our own ({own.uri_of('NAME')}): purge it with its broker's own tools"
        )
    return uri


commands = (queue,)
