"""Commands for dead letters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from fleet.cli.base import Group, ask, example, json_option
from fleet.cli.reading import fleet_of, reading
from fleet.cli.table import show_json, show_table
from fleet.errors import FleetError
from fleet.letter import KINDS
from fleet.operate import dead_letters, views
from fleet.operate.dead_letters import Letter, LettersWanted
from fleet.state.connect import Client
from fleet.state.registry import Registry
from fleet.words import number, span


async def names_of_queues(client: Client) -> list[str]:
    """The configured queues, and those that were configured and are not finished."""
    config = (await views.configuration(client))[1]
    return sorted({queue.name for queue in config.queues} | set(await Registry(client).queues()))


async def _found(client: Client, wanted: LettersWanted) -> list[Letter]:
    return [letter async for letter in dead_letters.letters(client, await names_of_queues(client), wanted)]


async def replay_letters(client: Client, queues: Sequence[str], wanted: LettersWanted) -> int:
    """Returns the exit code: 1 if a letter had to stay."""
    found = [letter async for letter in dead_letters.letters(client, queues, wanted)]
    if not found:
        raise FleetError("there is no such dead letter")
    config = (await views.configuration(client))[1]
    progress = sys.stderr.isatty()
    done = await dead_letters.replay(client, config, found, on_progress=_show if progress else None)
    if progress:
        click.echo("\r\033[K", nl=False, err=True)
    click.echo(f"{number(done.sent, 'message')} sent again.")
    for why in done.left:
        click.echo(f"left: {why}", err=True)
    return 1 if done.left else 0


def _show(sent: int) -> None:
    click.echo(f"\r{sent:,} sent", nl=False, err=True)


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--id", "id_", help="Only this message, by its own id or the one that its queue gave it."),
        click.option("--kind", type=click.Choice(KINDS), help="Only this kind."),
        click.option("--queue", help="Only this queue."),
    ):
        command = option(command)
    return command


@click.group(cls=Group, epilog=example("fleet dead list --queue default"))
def dead() -> None:
    """Messages that were acked and put aside.

    malformed: the body was not a message. parked: every try to deliver it failed, or none could be made. skipped: an
    operator put it aside. Each queue keeps its newest 10,000.
    """


@dead.command(name="list", epilog=example("fleet dead list", "fleet dead list --kind parked --json"))
@_filters
@click.option("--limit", type=click.IntRange(0), default=100, show_default=True, help="0 for all.")
@json_option
@click.pass_context
def list_(
    context: click.Context, queue: str | None, kind: str | None, id_: str | None, limit: int, as_json: bool
) -> None:
    """List dead letters, the newest of each queue first."""

    async def question() -> tuple[list[Letter], int]:
        async with reading(context) as client:
            wanted = LettersWanted(queue=queue, kind=kind, id=id_)
            found: list[Letter] = []
            async for letter in dead_letters.letters(client, await names_of_queues(client), wanted):
                if limit and len(found) == limit:
                    return found, 1
                found.append(letter)
            return found, 0

    found, more = ask(question())
    if as_json:
        show_json([letter.shown() for letter in found])
        return
    show_table(
        ("MESSAGE", "GROUP", "QUEUE", "KIND", "AGO", "REASON"),
        [
            (
                letter.content.get("messageId") or letter.content.get("brokerMessageId"),
                letter.content.get("messageGroupId"),
                letter.queue,
                letter.kind,
                span(letter.age_s()),
                str(letter.content.get("reason", "")),
            )
            for letter in found
        ],
        empty="There are no dead letters." if (queue, kind, id_) == (None, None, None) else "No dead letter matches.",
    )
    if more:
        click.echo(f"The first {limit}; --limit 0 shows all.")


@dead.command(epilog=example("fleet dead show 01K97FHM11EKYSXT135MVM6AC7"))
@click.argument("id_", metavar="ID")
@click.option("--queue", help="Only this queue.")
@click.pass_context
def show(context: click.Context, id_: str, queue: str | None) -> None:
    """Show everything about a dead letter except its authToken.

    ID is the message's own id or the one that its queue gave it. If several have it, each is a JSON object.
    """

    async def question() -> list[Letter]:
        async with reading(context) as client:
            return await _found(client, LettersWanted(queue=queue, id=id_))

    found = ask(question())
    if not found:
        raise FleetError(f"there is no dead letter of {id_}")
    for letter in found:
        show_json(letter.shown())


@dead.command(epilog=example("fleet dead replay --queue default --kind parked", "fleet dead replay --id 01K97FHM11"))
@_filters
@click.pass_context
def replay(context: click.Context, queue: str | None, kind: str | None, id_: str | None) -> int:
    """Send dead letters again to the queue they came from, the oldest first.

    Each is removed once its queue has accepted it. Malformed ones stay: there is no message to send. A replay that was
    interrupted can be repeated: a queue that remembers dedup ids drops what it has already.
    """
    if queue is None and kind is None and id_ is None:
        raise click.UsageError("Which ones? Give --queue, --kind or --id.", context)

    async def change() -> int:
        async with fleet_of(context) as client:
            return await replay_letters(
                client, await names_of_queues(client), LettersWanted(queue=queue, kind=kind, id=id_)
            )  # fmt: skip

    return ask(change())


@dead.command(epilog=example("fleet dead purge --queue default --kind malformed --yes"))
@_filters
@click.option("--yes", is_flag=True, help="Confirm: they are gone for good.")
@click.pass_context
def purge(context: click.Context, queue: str | None, kind: str | None, id_: str | None, yes: bool) -> int:
    """Throw dead letters away for good."""

    async def change() -> tuple[int, int]:
        async with fleet_of(context) as client:
            found = await _found(client, LettersWanted(queue=queue, kind=kind, id=id_))
            return len(found), await dead_letters.purge(client, found) if yes else 0

    found, gone = ask(change())
    if not yes:
        raise click.UsageError(f"{number(found, 'dead letter')} would be gone for good; add --yes.", context)
    click.echo(f"{number(gone, 'dead letter is', 'dead letters are')} gone.")
    return 0


commands = (dead,)
