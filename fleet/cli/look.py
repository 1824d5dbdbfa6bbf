"""Commands that show the fleet and change nothing."""

from __future__ import annotations

from typing import Any

import click

from fleet.cli.base import Command, ask, example, json_option, settings_of
from fleet.cli.reading import reading
from fleet.cli.table import show_json, show_table
from fleet.errors import InvalidConfig
from fleet.operate import views
from fleet.operate.status import Status
from fleet.operate.status import status as status_of
from fleet.state import observe, present
from fleet.state.connect import connected
from fleet.words import number, span

_MOST_SHOWN = 8


@click.command(cls=Command, epilog=example("fleet status", "fleet status --json | jq .problems"))
@json_option
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:
    """Show who runs, what waits and what is wrong."""

    async def question() -> Status:
        # `status_of` itself names what Redis refuses, as one of the problems.
        async with connected(settings_of(context).redis.url) as client:
            return await status_of(client)

    now = ask(question())
    if as_json:
        show_json(now.to_json())
        return
    roles = ", ".join(number(n, role) for role, n in sorted(now.roles.items()))
    redis = ", ".join(f"{server.version}, {server.used_bytes / 2**20:.1f} MB" for server in now.servers)
    as_of = " (when Redis took the last write)" if now.refused else ""
    click.echo(f"Processes  {roles or 'none'}{as_of}")
    click.echo(f"Leader     {now.leader.owner or 'nobody'}")
    click.echo(f"Config     {now.config.revision if now.config else 'none'}")
    click.echo(f"Redis      {redis}")
    click.echo(
        f"Messages   {now.waiting:,} waiting, {now.invisible:,} invisible, {now.tracked:,} taken,"
        f" {now.delivering:,} being delivered"
    )
    click.echo()
    _show_queues(sorted(now.queues, key=lambda q: q.view.tracked, reverse=True)[:_MOST_SHOWN])
    _rest(len(now.queues), "queues")
    click.echo()
    _show_pools(sorted(now.pools, key=lambda pool: pool.messages, reverse=True)[:_MOST_SHOWN])
    _rest(len(now.pools), "pools")
    click.echo()
    for problem in now.problems:
        click.echo(f"! {problem}")
    if not now.problems:
        click.echo("No problems.")


@click.command(cls=Command, epilog=example("fleet pools --json"))
@json_option
@click.pass_context
def pools(context: click.Context, as_json: bool) -> None:
    """List the pools and what became of their messages."""

    async def question() -> list[observe.PoolView]:
        async with reading(context) as client:
            return await observe.pools(client)

    found = ask(question())
    if as_json:
        show_json({pool.code: views.pool_json(pool) for pool in found})
    else:
        _show_pools(found)


@click.command(cls=Command, epilog=example("fleet queues --json"))
@json_option
@click.pass_context
def queues(context: click.Context, as_json: bool) -> None:
    """List the queues, how deep they are and who reads them."""

    async def question() -> list[views.QueueNow]:
        async with reading(context) as client:
            return await views.queues_now(client, (await views.configuration(client))[1])

    found = ask(question())
    if as_json:
        show_json({queue.view.name: views.queue_json(queue) for queue in found})
        return
    _show_queues(found)
    for queue in found:
        if queue.error:
            click.echo(f"! {queue.view.name}: {queue.error}")


@click.command(cls=Command, epilog=example("fleet workers --json"))
@json_option
@click.pass_context
def workers(context: click.Context, as_json: bool) -> None:
    """List the workers and how much each delivered."""

    async def question() -> list[dict[str, Any]]:
        async with reading(context) as client:
            return views.workers_json(await present.processes(client))

    rows = ask(question())
    if as_json:
        show_json(rows)
        return
    titles = ("WORKER", "UP", "IN FLIGHT", "DELIVERED", "FAILED", "A SECOND", "POOLS")
    show_table(
        titles,
        [
            (
                row["name"],
                span(observe.age_s(row["startedAt"])),
                row["inFlight"],
                row["totalSucceeded"],
                row["totalFailed"],
                row["throughput"],
                row["pools"],
            )
            for row in rows
        ],
        empty="No worker is running.",
    )


@click.command(cls=Command, epilog=example("fleet ps", "fleet ps --json | jq -r '.[].pid'"))
@json_option
@click.pass_context
def ps(context: click.Context, as_json: bool) -> None:
    """List every process of the fleet, on all machines."""

    async def question() -> list[dict[str, Any]]:
        async with reading(context) as client:
            return await views.processes_json(client)

    rows = ask(question())
    if as_json:
        show_json(rows)
        return
    show_table(
        ("ROLE", "NAME", "PID", "HOST", "UP", "QUEUES", "POOLS"),
        [
            (
                row["role"],
                row["name"],
                str(row["pid"]),
                row["host"],
                span(observe.age_s(row["startedAt"])),
                row["queues"],
                row["pools"],
            )
            for row in rows
        ],
        empty="No process is running.",
    )


@click.command(cls=Command, epilog=example("fleet leader --json"))
@json_option
@click.pass_context
def leader(context: click.Context, as_json: bool) -> None:
    """Say which coordinator leads."""

    async def question() -> dict[str, Any]:
        async with reading(context) as client:
            return await views.leader_json(client)

    found = ask(question())
    if as_json:
        show_json(found)
    elif found["leader"] is None:
        click.echo("Nobody leads.")
    else:
        owned = ", ".join(found["ownedQueues"]) or "no queue"
        click.echo(f"{found['leader']} has led since epoch {found['epoch']} and owns {owned}.")


@click.command(cls=Command, epilog=example("fleet inflight --queue default", "fleet inflight --limit 0 --json"))
@click.option("--queue", help="Only messages of this queue.")
@click.option("--pool", help="Only messages in this pool.")
@click.option("--limit", type=click.IntRange(0), default=100, show_default=True, help="0 for all.")
@json_option
@click.pass_context
def inflight(context: click.Context, queue: str | None, pool: str | None, limit: int, as_json: bool) -> None:
    """List messages between source and endpoint.

    Those that were taken from a queue and are not acknowledged there yet.
    """

    async def question() -> list[dict[str, Any]]:
        async with reading(context) as client:
            config = (await views.configuration(client))[1]
            names = sorted(one.name for one in config.queues)
            if queue is not None and queue not in names:
                raise InvalidConfig(f"no queue {queue} is configured; there are: {', '.join(names) or 'none'}")
            chosen = names if queue is None else [queue]
            return [row async for row in views.in_flight_json(client, chosen, pool=pool, limit=limit)]

    rows = ask(question())
    if as_json:
        show_json(rows)
        return
    show_table(
        ("MESSAGE", "GROUP", "QUEUE", "POOL", "STATE", "FOR"),
        [
            (
                row["messageId"],
                row["messageGroupId"],
                row["queueId"],
                row["poolCode"],
                row["state"],
                span(row["elapsedTimeMs"] / 1000),
            )
            for row in rows
        ],
        empty="Nothing is in flight." if (queue, pool) == (None, None) else "Nothing in flight matches.",
    )
    if limit and len(rows) == limit:
        click.echo(f"The first {limit}; --limit 0 shows all.")


commands = (status, ps, pools, queues, workers, leader, inflight)


def _show_pools(found: list[observe.PoolView]) -> None:
    rows = []
    for pool in found:
        now = views.pool_json(pool)
        rate = pool.settings.rate_limit_per_minute
        active = f"{pool.leases}/{pool.settings.concurrency}"
        rows.append(
            (
                pool.code,
                pool.state,
                now["queueSize"],
                active,
                "-" if rate is None else f"{rate}/min",
                now["totalSucceeded"],
                now["totalFailed"],
                views.came_back(pool),
                now["averageProcessingTimeMs"],
            )
        )
    titles = ("POOL", "STATE", "QUEUED", "ACTIVE", "RATE", "DELIVERED", "FAILED", "RETRIED", "MS")
    show_table(titles, rows, empty="There is no pool.")


def _show_queues(found: list[views.QueueNow]) -> None:
    rows = []
    for queue in found:
        depth, now = queue.depth, views.queue_json(queue)
        oldest = span(depth.oldest_s) if depth and depth.oldest_s else "-"
        rows.append(
            (
                queue.view.name,
                now["pendingMessages"],
                now["messagesNotVisible"],
                now["currentSize"],
                oldest,
                now["totalConsumed"],
                now["totalFailed"],
                queue.view.dead,
                queue.view.owner or "nobody",
            )
        )
    titles = ("QUEUE", "WAITING", "HIDDEN", "TAKEN", "OLDEST", "ACKED", "NACKED", "DEAD", "OWNER")
    show_table(titles, rows, empty="There is no queue.")


def _rest(count: int, what: str) -> None:
    if count > _MOST_SHOWN:
        click.echo(f"… and {count - _MOST_SHOWN} more; see fleet {what}")
