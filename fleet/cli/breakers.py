"""`fleet breakers` and `fleet breaker`: which endpoints are left alone for now, and letting them be called again."""

from __future__ import annotations

import click

from fleet.cli.base import Command, Group, ask, example, json_option, settings_of
from fleet.cli.reading import reading
from fleet.cli.table import show_json, show_table
from fleet.delivery.origin import origin_of
from fleet.state.breakers import BreakerView, SharedBreakers
from fleet.state.connect import connected
from fleet.words import span


@click.command(cls=Command, epilog=example("fleet breakers", "fleet breakers --json | jq -r '.[].origin'"))
@json_option
@click.pass_context
def breakers(context: click.Context, as_json: bool) -> None:
    """List the circuit breakers that are not closed.

    A breaker opens when half of its origin's last ten requests have failed, and closes after three probes that succeed.
    """

    async def question() -> tuple[int, list[BreakerView]]:
        async with reading(context) as client:
            return await SharedBreakers(client).all()

    now_ms, found = ask(question())
    if as_json:
        show_json([view.to_json() for view in found])
        return
    show_table(
        ("ORIGIN", "STATE", "PROBED IN", "SUCCESSES", "OPENED", "SINCE", "PROBER"),
        [
            (
                view.origin,
                view.state,
                span(view.retry_after_ms / 1000) if view.retry_after_ms else "-",
                view.successes,
                view.openings,
                span(max(0, now_ms - view.since_ms) / 1000),
                view.prober or "-",
            )
            for view in found
        ],
        empty="Every circuit breaker is closed.",
    )


@click.group(cls=Group, epilog=example("fleet breaker reset https://api.example.com"))
def breaker() -> None:
    """Act on circuit breakers."""


@breaker.command(epilog=example("fleet breaker reset https://api.example.com", "fleet breaker reset --all"))
@click.argument("origin", required=False)
@click.option("--all", "every", is_flag=True, help="All of them.")
@click.pass_context
def reset(context: click.Context, origin: str | None, every: bool) -> None:
    """Close the breaker of an origin, or all: workers call it again at once.

    ORIGIN is scheme, host and port, as listed; any URL that leads there will do.
    """
    if (origin is None) != every:
        raise click.UsageError("Give an ORIGIN, or --all.", context)
    normal = origin_of(origin or "")
    if origin is not None and not normal:
        raise click.UsageError(f"{origin} is not an origin (like https://api.example.com:8443).", context)

    async def question() -> bool:
        async with connected(settings_of(context).redis.url) as client:
            shared = SharedBreakers(client)
            there = {view.origin for view in (await shared.all())[1]}
            # A breaker that is closed in Redis too: a worker may have opened it while Redis was away.
            await (shared.reset(normal) if normal else shared.reset_all())
            return normal in there

    was_open = ask(question())
    if every:
        click.echo("Every circuit breaker is closed.")
    else:
        click.echo(f"{normal} is closed." if was_open else f"{normal} was already closed.")


commands = (breakers, breaker)
