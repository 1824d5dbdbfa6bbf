"""Commands for the groups of a pool."""

from __future__ import annotations

import time
from typing import Any

import click

from fleet.cli.base import Command, Group, ask, example, json_option
from fleet.cli.dead import names_of_queues, replay_letters
from fleet.cli.pool import no_such_pool
from fleet.cli.reading import fleet_of, reading
from fleet.cli.table import show_json, show_table
from fleet.errors import FleetError
from fleet.operate.dead_letters import LettersWanted
from fleet.operate.skip import skip_head
from fleet.state import groups as state_groups
from fleet.state.by_hand import PoolByHand
from fleet.state.groups import GroupView, PoolNow
from fleet.words import number, span, utc


@click.command(cls=Command, epilog=example("fleet groups ORDERS", "fleet groups ORDERS --limit 0 --json"))
@click.argument("pool")
@click.option("--limit", type=click.IntRange(0), default=100, show_default=True, help="0 for all.")
@json_option
@click.pass_context
def groups(context: click.Context, pool: str, limit: int, as_json: bool) -> None:
    """List the groups of a pool.

    First those that wait for a time, the soonest first; then those under way; then those that wait for a worker, in
    the order in which they are claimed.
    """

    async def question() -> tuple[PoolNow, list[GroupView]]:
        async with reading(context) as client:
            now = await state_groups.pool_now(client, pool)
            if now is None:
                raise no_such_pool(pool)
            return now, await state_groups.groups(client, pool, limit=limit)

    now, found = ask(question())
    if as_json:
        show_json([_group_json(view, paused=now.paused) for view in found])
        return
    rows = [
        (
            view.name,
            view.regular,
            view.high,
            _state(view, now),
            view.head.message_id,
            span(max(0.0, (now.now_ms - view.oldest_ms) / 1000)),
        )
        for view in found
    ]
    show_table(("GROUP", "QUEUED", "HIGH", "STATE", "FIRST", "OLDEST"), rows, empty=f"Pool {pool} holds no group.")
    if now.paused:
        click.echo(f"Pool {pool} is paused.")
    total = now.leases + now.later + now.ready
    if len(found) < total and limit:
        click.echo(f"{len(found)} of {number(total, 'group')}; --limit 0 shows all.")


def _state(view: GroupView, now: PoolNow) -> str:
    left = span(max(0.0, ((view.until_ms or 0) - now.now_ms) / 1000))
    match view.state:
        case "leased":
            return f"leased by {view.worker}, {left}"
        case "lapsed":
            return f"lapsed, was {view.worker}'s"
        case "waiting":
            return f"waits {left}" + (f", tries {view.head.tries}" if view.head.tries else "")
        case _:
            return "paused" if now.paused else "ready"


def _group_json(view: GroupView, *, paused: bool) -> dict[str, Any]:
    return {
        "group": view.name,
        "queuedRegular": view.regular,
        "queuedHigh": view.high,
        "state": "paused" if paused and view.state == "ready" else view.state,
        "worker": view.worker or None,
        "epoch": view.epoch or None,
        "until": None if view.until_ms is None else utc(view.until_ms),
        "tries": view.head.tries,
        "headMessageId": view.head.message_id,
        "oldestAt": utc(view.oldest_ms),
    }


@click.group(cls=Group, epilog=example("fleet group release ORDERS order-1"))
def group() -> None:
    """Set one group going again."""


@group.command(epilog=example("fleet group release ORDERS order-1"))
@click.argument("pool")
@click.argument("group")
@click.pass_context
def release(context: click.Context, pool: str, group: str) -> None:
    """Try a waiting group at once."""

    async def change() -> tuple[str, PoolNow]:
        async with fleet_of(context) as client:
            now = await state_groups.pool_now(client, pool)
            if now is None:
                raise no_such_pool(pool)
            return await PoolByHand(client, pool).release(group), now

    what, now = ask(change())
    match what:
        case "released":
            then = "once its pool is resumed" if now.paused else "now"
            click.echo(f"Group {group} is tried again {then}.")
        case "leased":
            click.echo(f"Group {group} does not wait: a worker delivers it.")
        case "ready":
            click.echo(f"Group {group} does not wait for a time (see fleet explain {group}).")
        case _:
            raise FleetError(f"pool {pool} holds no message of group {group}")


@group.command(epilog=example("fleet group skip ORDERS order-1", "fleet group skip ORDERS order-1 --force"))
@click.argument("pool")
@click.argument("group")
@click.option("--force", is_flag=True, help="Wait until the group is no longer under way.")
@click.option("--wait-s", type=click.FloatRange(0), default=60.0, show_default=True, help="How long --force waits.")
@click.pass_context
def skip(context: click.Context, pool: str, group: str, force: bool, wait_s: float) -> None:
    """Put a group's first message aside, so that the next goes out.

    It is acked at its queue and kept as a dead letter, for `fleet group replay`. While a worker delivers it, it
    cannot be taken away: --force waits, and does nothing if it was delivered in the end.
    """

    async def change() -> str:
        async with fleet_of(context) as client:
            return await skip_head(client, pool, group, give_up=time.monotonic() + (wait_s if force else 0.0))

    click.echo(f"Message {ask(change())} of group {group} is put aside (see fleet dead list).")


@group.command(epilog=example("fleet group replay ORDERS order-1"))
@click.argument("pool")
@click.argument("group")
@click.pass_context
def replay(context: click.Context, pool: str, group: str) -> int:
    """Send the dead letters of a group again, the oldest first.

    They go to the end of the queue they came from. Each is removed once its queue has accepted it.
    """

    async def change() -> int:
        async with fleet_of(context) as client:
            return await replay_letters(client, await names_of_queues(client), LettersWanted(pool=pool, group=group))

    return ask(change())


commands = (groups, group)
