"""`fleet subscriptions`: make them, look at them, pull from them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import click

from fleet.broker.errors import SubscriptionNotFound
from fleet.broker.message import PulledMessage
from fleet.broker.options import SubscriptionOptions
from fleet.broker.pull import MOST_PULLED
from fleet.cli.base import Group, ask, example, json_option
from fleet.cli.broker import broker_of, called_rightly, looking
from fleet.cli.table import show_json, show_table
from fleet.operate import topics as views
from fleet.words import number, read_moment, span, utc

_GROUPS = {
    "retry_policy": ("minimum_backoff", "maximum_backoff"),
    "dead_letter_policy": ("dead_letter_topic", "max_delivery_attempts"),
    "flow_control": ("max_messages", "max_bytes"),
}
_MOST_SHOWN = 60


@click.group(
    cls=Group,
    epilog=example(
        "fleet subscriptions add billing orders", "fleet subscriptions pull billing --ack", "fleet subscriptions list"
    ),
)
def subscriptions() -> None:
    """Copies of what is published to a topic, to be pulled or pushed."""


@subscriptions.command(
    epilog=example(
        "fleet subscriptions add billing orders",
        "fleet subscriptions add audit orders --message-ordering --dead-letter-topic dead-orders",
        "fleet subscriptions add eu orders --filter 'hasPrefix(attributes.region, \"eu-\")'",
    )
)
@click.argument("name")
@click.argument("topic")
@click.option("--ack-deadline-seconds", type=float, help="How long a pulled message may be worked on. Default: 10.")
@click.option("--message-ordering", is_flag=True, default=None, help="Give the messages of one ordering key in turn.")
@click.option("--minimum-backoff", type=float, metavar="SECONDS", help="After the first nack; doubled with each.")
@click.option("--maximum-backoff", type=float, metavar="SECONDS", help="Of any nack.")
@click.option("--dead-letter-topic", metavar="TOPIC", help="Where a message goes when its attempts are spent.")
@click.option("--max-delivery-attempts", type=int, help="How many those are. Default: 5.")
@click.option("--max-messages", type=int, help="How many may be in flight.")
@click.option("--max-bytes", type=int, help="How many bytes may be in flight, as stored.")
@click.option("--filter", help="Which messages it gets, by their attributes, in Pub/Sub's language.")
@click.option("--message-retention-seconds", type=float, help="What is older is dropped. Default: 604,800 (7 days).")
@json_option
@click.pass_context
def add(context: click.Context, /, name: str, topic: str, as_json: bool, **given: Any) -> None:
    """Subscribe to a topic: it gets what is published from now on.

    One that is there already with the same options stays as it is. Options are changed by removing it and making it
    anew.
    """
    options = {key: value for key, value in given.items() if value is not None}
    for group, names in _GROUPS.items():
        if found := {key: options.pop(key) for key in names if key in options}:
            options[group] = found

    async def change() -> tuple[bool, str]:
        async with broker_of(context) as broker:
            with called_rightly(context):
                read = SubscriptionOptions.read(options)
                was_there = await broker.get_subscription(name) is not None
                await broker.register_subscription(name, topic, read)
            policy = read.dead_letter_policy
            if policy is None or await broker.get_topic(policy.dead_letter_topic) is not None:
                return was_there, ""
            return was_there, policy.dead_letter_topic

    was_there, missing = ask(change())
    if missing:
        click.echo(f"note: there is no topic {missing} yet; until then what fails for good stays here", err=True)
    if as_json:
        show_json({"name": name, "topic": topic, "created": not was_there})
    else:
        click.echo(f"{name} subscribes to {topic}{' (it did before)' if was_there else ''}.")


@subscriptions.command(name="list", epilog=example("fleet subscriptions list", "fleet subscriptions list --json"))
@json_option
@click.pass_context
def list_(context: click.Context, as_json: bool) -> None:
    """List the subscriptions and how they stand."""

    async def question() -> list[dict[str, Any]]:
        async with looking(context) as broker:
            return await views.subscriptions_json(broker)

    found = ask(question())
    if as_json:
        show_json(found)
        return
    rows = [
        (
            one["name"],
            f"{one['topic']} (deleted)" if one["detached"] else one["topic"],
            one["messages"],
            one["inFlight"],
            one["deadLettersWaiting"],
            _age(one),
        )
        for one in found
    ]
    titles = ("SUBSCRIPTION", "TOPIC", "MESSAGES", "IN FLIGHT", "DEAD LETTERS WAITING", "OLDEST")
    show_table(titles, rows, empty="There are no subscriptions; make one: fleet subscriptions add NAME TOPIC")


@subscriptions.command(epilog=example("fleet subscriptions show billing", "fleet subscriptions show billing --json"))
@click.argument("name")
@json_option
@click.pass_context
def show(context: click.Context, name: str, as_json: bool) -> None:
    """Show a subscription: its options, what it holds, what is in flight, which dead letters wait for their topic."""

    async def question() -> dict[str, Any]:
        async with looking(context) as broker:
            with called_rightly(context):
                found = await broker.get_subscription(name)
            depths = await broker.all_depths([name])
            if found is None or name not in depths:
                raise SubscriptionNotFound(name)
            return views.subscription_json(found, depths[name])

    found = ask(question())
    if as_json:
        show_json(found)
        return
    for title, value in (
        ("Subscription", name),
        ("Topic", found["topic"] + (" (deleted: it gives nothing any more)" if found["detached"] else "")),
        ("Created", found["createdAt"]),
        ("Messages", f"{found['messages']:,}, {found['bytes']:,} bytes"),
        ("In flight", f"{found['inFlight']:,}, and {found['inBackoff']:,} in backoff"),
        ("Oldest", _age(found)),
        ("Dead letters", f"{found['deadLettersWaiting']:,} waiting for their topic"),
    ):
        click.echo(f"{title:<13} {value}")
    for option, value in sorted(found["options"].items()):
        named = value.items() if isinstance(value, dict) else ()
        click.echo(f"{option}: {', '.join(f'{k} {_option(v)}' for k, v in named) or _option(value)}")


@subscriptions.command(epilog=example("fleet subscriptions remove billing --yes"))
@click.argument("name")
@click.option("--yes", is_flag=True, help="Confirm that its messages are gone for good.")
@json_option
@click.pass_context
def remove(context: click.Context, name: str, yes: bool, as_json: bool) -> None:
    """Delete a subscription, and its messages."""

    async def change() -> int:
        async with broker_of(context) as broker:
            with called_rightly(context):
                depths = await broker.all_depths([name])
                if name not in depths:
                    raise SubscriptionNotFound(name)
                if yes or not depths[name].messages:
                    await broker.unregister_subscription(name)
            return depths[name].messages

    messages = ask(change())
    if messages and not yes:
        raise click.UsageError(f"{number(messages, 'message')} would be gone for good; add --yes.", context)
    if as_json:
        show_json({"name": name, "messages": messages})
    else:
        click.echo(f"Subscription {name} is gone, with {number(messages, 'message')}.")


@subscriptions.command(
    epilog=example(
        "fleet subscriptions pull billing --max 10 --ack", "fleet subscriptions pull billing --wait 30 --json"
    )
)
@click.argument("name")
@click.option("--max", "most", type=click.IntRange(1, MOST_PULLED), default=1, show_default=True, help="How many.")
@click.option("--ack/--no-ack", "acks", help="Ack what was printed. Without it they show again after the deadline.")
@click.option(
    "--wait", "wait_s", metavar="SECONDS", type=click.FloatRange(0, 600), default=0, help="For the first one."
)
@json_option
@click.pass_context
def pull(context: click.Context, name: str, most: int, acks: bool, wait_s: float, as_json: bool) -> None:
    """Pull messages and print them. Each pull counts as an attempt at delivery."""

    async def take() -> None:
        async with broker_of(context) as broker:
            with called_rightly(context):
                messages = await broker.pull(name, most, wait_s=wait_s)
            _show_messages(messages, as_json=as_json)
            if acks:
                # Only now: what could not be printed is shown again.
                for message in messages:
                    await broker.ack(message.ack_id)

    ask(take())


@subscriptions.command(
    epilog=example("fleet subscriptions seek billing now", "fleet subscriptions seek billing 2026-01-31T12:00:00Z")
)
@click.argument("name")
@click.argument("time")
@json_option
@click.pass_context
def seek(context: click.Context, name: str, time: str, as_json: bool) -> None:
    """Throw away what was published before TIME: `now`, or a date or time in ISO 8601. It goes forwards only."""
    try:
        before_ms = read_moment(utc() if time == "now" else time)
    except ValueError:
        words = f"TIME must be `now`, or a date or time in ISO 8601, is {time!r}."
        raise click.UsageError(words, context) from None

    async def change() -> int:
        async with broker_of(context) as broker:
            with called_rightly(context):
                return await broker.seek(name, before_ms / 1000)

    gone = ask(change())
    if as_json:
        show_json({"name": name, "gone": gone})
    else:
        click.echo(f"{number(gone, 'message is', 'messages are')} gone.")


def _age(subscription: dict[str, Any]) -> str:
    return span(subscription["oldestSeconds"]) if subscription["messages"] else "-"


def _option(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _show_messages(messages: list[PulledMessage], *, as_json: bool) -> None:
    if as_json:
        show_json([_json(message) for message in messages])
        return
    rows = []
    for message in messages:
        data = message.data.decode("utf-8", "replace")
        short = data if len(data) <= _MOST_SHOWN else f"{data[:_MOST_SHOWN]}…"
        attributes = ", ".join(f"{key}={value}" for key, value in message.attributes.items())
        rows.append((message.id, message.delivery_attempt, message.ordering_key or "", attributes, short))
    show_table(("ID", "ATTEMPT", "KEY", "ATTRIBUTES", "DATA"), rows, empty="No message is there to be pulled.")


def _json(message: PulledMessage) -> dict[str, Any]:
    try:
        data = {"data": message.data.decode()}
    except UnicodeDecodeError:
        data = {"dataBase64": b64encode(message.data).decode()}
    return {
        "id": message.id,
        **data,
        "attributes": dict(message.attributes),
        "orderingKey": message.ordering_key,
        "publishTime": message.publish_time.isoformat().replace("+00:00", "Z"),
        "deliveryAttempt": message.delivery_attempt,
        "ackId": message.ack_id,
    }


commands = (subscriptions,)
