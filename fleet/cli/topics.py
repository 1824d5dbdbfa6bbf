"""`fleet topics`: make them, look at them, publish to them."""

from __future__ import annotations

from typing import Any, BinaryIO

import click

from fleet.broker.core import Broker
from fleet.broker.errors import TopicNotFound
from fleet.cli.base import Group, ask, example, json_option
from fleet.cli.broker import broker_of, called_rightly, looking
from fleet.cli.table import show_json, show_table, tell_some
from fleet.operate import topics as views
from fleet.operate.publish import Published, from_lines, publish_all
from fleet.words import number


@click.group(
    cls=Group,
    epilog=example("fleet topics add orders", "fleet topics publish orders --body hello", "fleet topics list"),
)
def topics() -> None:
    """Names to publish to: every subscription of a topic gets a copy of each message."""


@topics.command(epilog=example("fleet topics add orders"))
@click.argument("name")
@json_option
@click.pass_context
def add(context: click.Context, name: str, as_json: bool) -> None:
    """Make a topic. One that is there already stays as it is."""

    async def change() -> bool:
        async with broker_of(context) as broker:
            with called_rightly(context):
                was_there = await broker.get_topic(name) is not None
                await broker.register_topic(name)
            return was_there

    was_there = ask(change())
    if as_json:
        show_json({"name": name, "created": not was_there})
    else:
        click.echo(f"Topic {name} is there{' (it was before)' if was_there else ''}.")


@topics.command(name="list", epilog=example("fleet topics list", "fleet topics list --json | jq -r '.[].name'"))
@json_option
@click.pass_context
def list_(context: click.Context, as_json: bool) -> None:
    """List the topics and who subscribes to them."""

    async def question() -> list[dict[str, Any]]:
        async with looking(context) as broker:
            return await views.topics_json(broker)

    found = ask(question())
    if as_json:
        show_json(found)
        return
    rows = [(one["name"], one["subscriptions"], one["createdAt"]) for one in found]
    show_table(
        ("TOPIC", "SUBSCRIPTIONS", "CREATED"), rows, empty="There are no topics; make one: fleet topics add NAME"
    )


@topics.command(epilog=example("fleet topics show orders"))
@click.argument("name")
@json_option
@click.pass_context
def show(context: click.Context, name: str, as_json: bool) -> None:
    """Show a topic, and how its subscriptions stand."""

    async def question() -> tuple[dict[str, Any], list[dict[str, Any]]]:
        async with looking(context) as broker:
            return await _look(context, broker, name)

    topic, subscriptions = ask(question())
    if as_json:
        show_json({**topic, "subscriptions": subscriptions})
        return
    click.echo(f"Topic    {name}")
    click.echo(f"Created  {topic['createdAt']}")
    click.echo()
    rows = [
        (one["name"], one["messages"], one["inFlight"], one["deadLettersWaiting"], one["options"].get("filter", ""))
        for one in subscriptions
    ]
    titles = ("SUBSCRIPTION", "MESSAGES", "IN FLIGHT", "DEAD LETTERS WAITING", "FILTER")
    show_table(titles, rows, empty="Nobody subscribes: what is published is discarded.")


@topics.command(epilog=example("fleet topics remove orders --yes"))
@click.argument("name")
@click.option("--yes", is_flag=True, help="Confirm that messages of its subscriptions are gone for good.")
@json_option
@click.pass_context
def remove(context: click.Context, name: str, yes: bool, as_json: bool) -> None:
    """Delete a topic, and the messages of its subscriptions.

    Its subscriptions stay and give nothing any more, also if a topic of that name is made again: make them anew.
    """

    async def change() -> tuple[int, int]:
        async with broker_of(context) as broker:
            _, subscriptions = await _look(context, broker, name)
            messages = sum(one["messages"] for one in subscriptions)
            if yes or not messages:
                await broker.unregister_topic(name)
            return len(subscriptions), messages

    subscriptions, messages = ask(change())
    if messages and not yes:
        what = number(messages, "message")
        raise click.UsageError(f"{what} of subscriptions to {name} would be gone for good; add --yes.", context)
    if as_json:
        show_json({"name": name, "messages": messages, "subscriptions": subscriptions})
    else:
        click.echo(f"Topic {name} is gone, and {number(messages, 'message')} of its subscriptions.")


@topics.command(
    epilog=example(
        "fleet topics publish orders --body '{\"order\": 17}' --attribute kind=new --key customer-3",
        "fleet topics publish orders --file messages.ndjson",
    )
)
@click.argument("name")
@click.option("--body", metavar="TEXT", help="The data of one message.")
@click.option("--file", metavar="NDJSON", type=click.File("rb", lazy=False), help="One message a line; - for stdin.")
@click.option("--attribute", "attributes", metavar="KEY=VALUE", multiple=True, help="For every message; repeat it.")
@click.option("--key", metavar="TEXT", help="The ordering key of every message.")
@json_option
@click.pass_context
def publish(
    context: click.Context,
    name: str,
    body: str | None,
    file: BinaryIO | None,
    attributes: tuple[str, ...],
    key: str | None,
    as_json: bool,
) -> int:
    """Publish messages to a topic.

    A line of a file is {"data": TEXT or JSON, "attributes"?, "orderingKey"?}, or has "dataBase64". A line that is
    refused is named and the others go on; the exit code is 1 then. If the broker goes away, publishing ends there.
    """
    if (body is None) == (file is None):
        raise click.UsageError("Give --body or --file.", context)
    if wrong := [one for one in attributes if "=" not in one]:
        raise click.UsageError(f"--attribute {wrong[0]}: must be KEY=VALUE.", context)
    named = dict(one.split("=", 1) for one in attributes)

    async def send() -> Published:
        async with broker_of(context) as broker:
            if file is not None:
                return await publish_all(broker, name, from_lines(file, attributes=named, ordering_key=key))
            message = {"data": (body or "").encode(), "attributes": named, "ordering_key": key}
            with called_rightly(context):
                return Published(ids=await broker.publish(name, [message]))

    done = ask(send())
    tell_some("refused", done.refusals, done.refused)
    if done.stopped:
        click.echo(f"stopped: {done.stopped}", err=True)
    if as_json:
        show_json({"topic": name, "messageIds": done.ids, "refused": done.refused, "unknown": done.unknown})
    else:
        counts = [f"{len(done.ids)} published"]
        counts += [f"{done.refused} refused"] if done.refused else []
        counts += [f"{done.unknown} unknown"] if done.unknown else []
        click.echo(", ".join(counts))
    return 0 if done.is_whole else 1


async def _look(context: click.Context, broker: Broker, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    with called_rightly(context):
        topic = await broker.get_topic(name)
    if topic is None:
        raise TopicNotFound(name)
    found = await broker.get_subscriptions_for_topic(name)
    depths = await broker.all_depths([one.name for one in found])
    shown = [views.subscription_json(one, depths[one.name]) for one in found if one.name in depths]
    return {"name": name, "createdAt": views.created_at(topic)}, shown


commands = (topics,)
