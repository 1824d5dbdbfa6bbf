"""`fleet sqs`: the SQS door, and what is behind it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import click

from fleet.cli.base import Group, ask, become, example, json_option, settings_of
from fleet.cli.processes import check_metrics_ports, metrics_port_option, supervised
from fleet.cli.reading import fleet_of, reading
from fleet.cli.server import PORT
from fleet.cli.table import show_json, show_table
from fleet.words import number, span

COUNT = click.IntRange(1, 256)


@click.group(
    cls=Group,
    invoke_without_command=True,
    epilog=example("fleet sqs", "fleet sqs --port 9324 --processes 4", "fleet sqs queues"),
)
@click.option("--host", help="Default: FLEET_SQS_HOST, else 127.0.0.1. Any other needs FLEET_SQS_ACCESS_KEYS.")
@click.option("--port", type=PORT, help="Default: FLEET_SQS_PORT, else 9324. 0: any free one.")
@click.option("--processes", type=COUNT, default=1, show_default=True, help="Door processes, restarted if they die.")
@metrics_port_option
@click.option("--shared", is_flag=True, hidden=True, help="Other doors listen at the same port.")
@click.pass_context
def sqs(
    context: click.Context,
    host: str | None,
    port: int | None,
    processes: int,
    metrics_port: int | None,
    shared: bool,
) -> int | None:
    """Answer SQS: queues in Redis behind the API of AWS, for any of its clients by their endpoint_url.

    Both protocols, FIFO queues, dead letters, long polls. Without access keys (FLEET_SQS_ACCESS_KEYS=ID:SECRET,…) it
    listens on this machine alone. With several processes each has a metrics port of its own, from --metrics-port on.
    """
    if context.invoked_subcommand is not None:
        return None
    settings = settings_of(context)
    own = settings.sqs
    own = replace(own, host=host or own.host, port=own.port if port is None else port)
    settings = replace(settings, sqs=own)
    check_metrics_ports(context, metrics_port, processes)
    if processes == 1:
        from fleet.broker.sqs.main import run

        become(settings, f"sqs-{os.getpid()}")
        return run(settings, shared=shared, metrics_port=metrics_port)
    from fleet.listening import listen
    from fleet.local.supervise import Supervisor
    from fleet.local.up import environment_for, programs

    become(settings, f"sqs-doors-{os.getpid()}")
    # All listen at the port that is free now, and each takes its part of the connections.
    with listen(own.host, own.port, shared=True) as door:
        own = replace(own, port=int(door.getsockname()[1]))
    arguments = ("--host", own.host, "--port", str(own.port), "--shared")
    environment = environment_for(settings, os.environ)
    stage = programs("sqs", processes, environment, *arguments, metrics_port=metrics_port)
    return asyncio.run(supervised(Supervisor(stages=[stage]), settings.redis.url))


@sqs.command(epilog=example("fleet sqs queues", "fleet sqs queues --json"))
@json_option
@click.pass_context
def queues(context: click.Context, as_json: bool) -> None:
    """The queues behind the door, and how much stands in each.

    OUT is in flight: received, and neither deleted nor visible again. MOVING is on its way to another queue, as a dead
    letter or by a move task. OLDEST is the age of the oldest message that is not in flight.
    """
    from fleet.broker.sqs import look

    async def found() -> list[look.QueueNow]:
        async with reading(context) as client:
            return await look.queues(client)

    rows = ask(found())
    if as_json:
        show_json([_document(one) for one in rows])
        return
    show_table(
        ["QUEUE", "VISIBLE", "OUT", "DELAYED", "MOVING", "OLDEST", "PARTITIONS", "DEAD LETTERS TO"],
        [
            [
                one.name,
                one.counts.visible,
                one.counts.not_visible,
                one.counts.delayed,
                one.counts.moving,
                span(one.counts.oldest_s) if one.counts.oldest_s else "",
                one.record.attributes.partitions,
                one.record.attributes.redrive.target if one.record.attributes.redrive else "",
            ]
            for one in rows
        ],
        empty="No queues yet: create one with any SQS client.",
    )


@sqs.command(epilog=example("fleet sqs show orders.fifo"))
@click.argument("name")
@json_option
@click.pass_context
def show(context: click.Context, name: str, as_json: bool) -> None:
    """One queue: its attributes as AWS names them, and its tags."""
    from fleet.broker.sqs import look

    region = settings_of(context).sqs.region

    async def found() -> look.QueueNow:
        async with reading(context) as client:
            return await look.queue(client, name)

    now = ask(found())
    attributes = look.described(now, ["All"], region)
    if as_json:
        show_json({**_document(now), "attributes": attributes, "tags": now.record.tags})
        return
    rows = [*sorted(attributes.items()), *((f"tag {key}", value) for key, value in sorted(now.record.tags.items()))]
    show_table(["ATTRIBUTE", "VALUE"], rows, empty="", ends_in_prose=True)


@sqs.command(epilog=example("fleet sqs purge orders --yes"))
@click.argument("name")
@click.option("--yes", is_flag=True, help="Confirm: they are gone for good.")
@json_option
@click.pass_context
def purge(context: click.Context, name: str, yes: bool, as_json: bool) -> None:
    """Throw away all messages of a queue behind the door, those in flight and delayed ones too."""
    from fleet.broker.sqs import look

    async def change() -> int:
        async with fleet_of(context) as client:
            now = await look.queue(client, name)
            counts = now.counts
            return await look.purge(client, name) if yes else counts.visible + counts.not_visible + counts.delayed

    count = ask(change())
    if not yes:
        raise click.UsageError(f"{number(count, 'message')} of {name} would be gone for good; add --yes.", context)
    if as_json:
        show_json({"queue": name, "purged": count})
    else:
        click.echo(f"{number(count, 'message is', 'messages are')} gone.")


def _document(one: object) -> dict[str, object]:
    from fleet.broker.sqs import look

    assert isinstance(one, look.QueueNow)
    redrive = one.record.attributes.redrive
    return {
        "name": one.name,
        "fifo": one.record.attributes.fifo,
        "partitions": one.record.attributes.partitions,
        "visible": one.counts.visible,
        "notVisible": one.counts.not_visible,
        "delayed": one.counts.delayed,
        "moving": one.counts.moving,
        "oldestSeconds": round(one.counts.oldest_s, 3) if one.counts.visible else None,
        "deadLetterQueue": redrive.target if redrive else None,
    }


commands = (sqs,)
