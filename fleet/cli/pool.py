"""Commands that change one pool by hand."""

from __future__ import annotations

import click

from fleet.cli.base import Group, ask, example
from fleet.cli.reading import fleet_of
from fleet.config.router import MAX_NUMBER
from fleet.errors import FleetError
from fleet.state import groups
from fleet.state.by_hand import NO_RATE, Adjusted, PoolByHand
from fleet.words import number


def no_such_pool(code: str) -> FleetError:
    return FleetError(f"there is no pool {code} (see fleet pools)")


def _rate(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    if value == "none":
        return NO_RATE
    return click.IntRange(1, MAX_NUMBER)(value, option, context)


@click.group(cls=Group, epilog=example("fleet pool pause ORDERS", "fleet pool set ORDERS --concurrency 5"))
def pool() -> None:
    """Change one pool by hand.

    A pause lasts until the pool is resumed, whatever is published. Every other change by hand lasts until a new
    revision of the configuration is published, whatever has changed in it: then each pool is as configured again. A
    syncer that restarts, or reloads what has not changed, publishes no new revision.
    """


@pool.command(
    name="set",
    epilog=example("fleet pool set ORDERS --concurrency 5", "fleet pool set ORDERS --rate-limit-per-minute none"),
)
@click.argument("code")
@click.option("--concurrency", type=click.IntRange(1, MAX_NUMBER), metavar="N", help="Groups at a time.")
@click.option(
    "--rate-limit-per-minute", "rate", callback=_rate, metavar="N|none", help="Deliveries a minute, or no limit."
)
@click.pass_context
def set_(context: click.Context, code: str, concurrency: int | None, rate: int | None) -> None:
    """Change a pool's limits at once.

    What is under way goes on: after the concurrency was lowered, nothing starts until there are fewer. A higher one
    raises the capacity too, if the configuration names none. The change lasts until a new revision of the configuration
    is published; publishing the same one again changes nothing.
    """
    if concurrency is None and rate is None:
        raise click.UsageError("Nothing to set: give --concurrency or --rate-limit-per-minute.", context)

    async def change() -> Adjusted:
        async with fleet_of(context) as client:
            return await PoolByHand(client, code).adjust(concurrency=concurrency, rate=rate)

    now = ask(change())
    if now.tag == "unknown":
        raise no_such_pool(code)
    per_minute = "no rate limit" if now.rate_limit_per_minute is None else f"{now.rate_limit_per_minute} a minute"
    limits = f"concurrency {now.concurrency}, {per_minute}, capacity {now.capacity}"
    if now.changed:
        click.echo(f"Pool {code} has {limits}.\nThe change lasts until a new revision of the configuration.")
    else:
        click.echo(f"Pool {code} already has {limits}.")


@pool.command(epilog=example("fleet pool pause ORDERS"))
@click.argument("code")
@click.pass_context
def pause(context: click.Context, code: str) -> None:
    """Stop starting deliveries of a pool.

    What is under way goes on. The pause lasts until `fleet pool resume`, whatever is published.
    """

    async def change() -> int:
        async with fleet_of(context) as client:
            if not await PoolByHand(client, code).pause(True):
                raise no_such_pool(code)
            now = await groups.pool_now(client, code)
            return now.leases if now else 0

    leases = ask(change())
    go_on = number(leases, "delivery is under way and goes on", "deliveries are under way and go on")
    under_way = f"; {go_on}" if leases else ""
    click.echo(f"Pool {code} is paused{under_way}.")


@pool.command(epilog=example("fleet pool resume ORDERS"))
@click.argument("code")
@click.pass_context
def resume(context: click.Context, code: str) -> int:
    """Deliver again after a pause, or take messages again after a drain by hand."""

    async def change() -> tuple[groups.PoolNow | None, Adjusted]:
        async with fleet_of(context) as client:
            before = await groups.pool_now(client, code)
            by_hand = PoolByHand(client, code)
            await by_hand.pause(False)
            return before, await by_hand.adjust(draining=False)

    before, now = ask(change())
    if before is None or now.tag == "unknown":
        raise no_such_pool(code)
    if now.tag == "gone":
        if before.paused:
            click.echo(f"Pool {code} delivers again.")
        raise FleetError(f"pool {code} drains because it is not configured any more: it takes no new messages")
    if before.paused or now.changed:
        click.echo(f"Pool {code} delivers again{', and takes messages' if now.changed else ''}.")
    else:
        click.echo(f"Pool {code} was neither paused nor draining.")
    return 0


@pool.command(epilog=example("fleet pool drain ORDERS", "fleet pool resume ORDERS"))
@click.argument("code")
@click.pass_context
def drain(context: click.Context, code: str) -> None:
    """Deliver what a pool holds, and take nothing new.

    New messages stay in their queues until `fleet pool resume`, or until a new revision of the configuration. To
    remove a pool, take it out of the configuration: it then drains by itself.
    """

    async def change() -> tuple[Adjusted, groups.PoolNow | None]:
        async with fleet_of(context) as client:
            return await PoolByHand(client, code).adjust(draining=True), await groups.pool_now(client, code)

    now, state = ask(change())
    if now.tag == "unknown" or state is None:
        raise no_such_pool(code)
    drains = "drains" if now.changed else "already drains"
    click.echo(f"Pool {code} {drains}; it holds {number(state.messages, 'message')}.")
    if state.paused:
        click.echo("It is paused, and delivers none of them before it is resumed.")
    if state.by_hand:
        click.echo(
            "The configuration still names it: new messages stay in their queues\nuntil it is resumed, or until a"
            " new revision is published."
        )


commands = (pool,)
