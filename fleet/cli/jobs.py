"""Commands for dispatch jobs."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, BinaryIO

import click

from fleet.cli.base import Group, example, json_option
from fleet.cli.store import file_option, limit_option, progress, store_of, tell
from fleet.cli.table import show_json, show_table
from fleet.errors import FleetError
from fleet.jobs.add import add as add_lines
from fleet.jobs.read import read_job, read_lines
from fleet.jobs.records import STATUSES
from fleet.jobs.shown import attempt_json, job_json, moment
from fleet.words import number


class _Age(click.ParamType[float]):
    """30d, 12h, 90m, 5s → seconds."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d{1,9})([dhms])", str(value))
        if found is None:
            self.fail(f"{value!r} is not an age: a number and d, h, m or s, like 30d", param, ctx)
        return float(found[1]) * {"d": 86_400, "h": 3600, "m": 60, "s": 1}[found[2]]


def _which(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--pool", metavar="CODE", help="Only this pool."),
        click.option("--group", help="Only this message group."),
    ):
        command = option(command)
    return command


@click.group(cls=Group, epilog=example("fleet jobs add --file jobs.ndjson", "fleet jobs stats"))
def jobs() -> None:
    """Dispatch jobs: payloads on their way to a URL, each with its own retries.

    They are kept in FLEET_DATABASE_URL, or in a file in the data folder; the pipeline sends them when they are due.
    """


@jobs.command(
    epilog=example(
        "fleet jobs add --file jobs.ndjson",
        'echo \'{"targetUrl":"http://127.0.0.1:8421/fast","payload":{"order":17},"messageGroup":"order-17"}\' |'
        " fleet jobs add --file -",
    )
)
@file_option
@json_option
@click.pass_context
def add(context: click.Context, file: BinaryIO, as_json: bool) -> int:
    """Add jobs, in the order of the file.

    A line: {"id"?,"targetUrl","payload","mode"?,"poolCode"?,"messageGroup"?,"sequence"?,"scheduledFor"?,"expiresAt"?,
    "maxRetries"?,"timeoutSeconds"?,"idempotencyKey"?}. A job that is refused is reported with its line; the others go
    on, and the exit code is 1. One whose id or idempotencyKey is already there is not added again.
    """
    with store_of(context) as store, progress() as show:
        total = add_lines(read_lines(file, read_job), store.add_jobs, on_progress=show)
    return tell(total, as_json=as_json)


@jobs.command(name="list", epilog=example("fleet jobs list --status ERROR", "fleet jobs list --group order-17 --json"))
@click.option("--status", type=click.Choice(STATUSES, case_sensitive=False), help="Only this status.")
@_which
@limit_option
@json_option
@click.pass_context
def list_(
    context: click.Context, status: str | None, group: str | None, pool: str | None, limit: int, as_json: bool
) -> None:
    """List jobs, the newest first."""
    with store_of(context) as store:
        found = store.jobs(status=status, group=group, pool=pool, limit=limit and limit + 1)
    more = bool(limit) and len(found) > limit
    found = found[:limit] if more else found
    if as_json:
        show_json([job_json(job) for job in found])
        return
    rows = [
        (job.id, job.status, job.attempt, job.msg_group, job.sequence, job.pool, moment(job.scheduled_ms),
         job.last_error)
        for job in found
    ]  # fmt: skip
    titles = ("JOB", "STATUS", "ATTEMPT", "GROUP", "SEQUENCE", "POOL", "DUE", "LAST ERROR")
    filtered = any(wanted is not None for wanted in (status, group, pool))
    show_table(titles, rows, empty="No job matches." if filtered else "There are no jobs.")
    if more:
        click.echo(f"The first {limit}; --limit 0 shows all.")


@jobs.command(epilog=example("fleet jobs show 01K97FHM11EKYSXT135MVM6AC7"))
@click.argument("id_", metavar="ID")
@click.option("--json", "_", is_flag=True, help="Print JSON, which it does in any case.")
@click.pass_context
def show(context: click.Context, id_: str, _: bool) -> None:
    """Show everything about a job: its payload and every attempt."""
    with store_of(context) as store:
        job = store.job(id_)
        if job is None:
            raise FleetError(f"there is no job {id_}")
        attempts = [attempt_json(attempt) for attempt in store.attempts(id_)]
    show_json({**job_json(job, payload=True), "attempts": attempts})


@jobs.command(epilog=example("fleet jobs retry 01K97FHM11EKYSXT135MVM6AC7", "fleet jobs retry --group order-17"))
@click.argument("ids", metavar="[ID]...", nargs=-1)
@_which
@click.option("--all", "all_", is_flag=True, help="Every job that is in ERROR.")
@click.pass_context
def retry(context: click.Context, ids: tuple[str, ...], group: str | None, pool: str | None, all_: bool) -> int:
    """Deliver jobs in ERROR again: one more attempt each, due now."""
    _check_choice(context, ids, group, pool, all_=all_)
    with store_of(context) as store:
        if not ids:
            return _told(store.retry_all(group=group, pool=pool), "will be delivered again", "is in ERROR")
        return _each(ids, store.retry, "will be delivered again", "is not in ERROR")


@jobs.command(epilog=example("fleet jobs cancel 01K97FHM11EKYSXT135MVM6AC7", "fleet jobs cancel --group order-17"))
@click.argument("ids", metavar="[ID]...", nargs=-1)
@_which
@click.pass_context
def cancel(context: click.Context, ids: tuple[str, ...], group: str | None, pool: str | None) -> int:
    """Cancel jobs that wait, or whose message is in a queue. What is under way goes on.

    By its ID a job in ERROR can be cancelled too: the BLOCK_ON_ERROR jobs behind it then go on.
    """
    _check_choice(context, ids, group, pool)
    with store_of(context) as store:
        if not ids:
            return _told(store.cancel_all(group=group, pool=pool), "cancelled", "waits")
        return _each(ids, store.cancel, "cancelled", "is under way, finished, or unknown")


@jobs.command(epilog=example("fleet jobs stats", "fleet jobs stats --json"))
@json_option
@click.pass_context
def stats(context: click.Context, as_json: bool) -> None:
    """Count the jobs of each status."""
    with store_of(context) as store:
        found = store.stats()
    if as_json:
        show_json(found)
    else:
        show_table(("STATUS", "JOBS"), list(found.items()), empty="")


@jobs.command(epilog=example("fleet jobs prune --older-than 30d --dry-run", "fleet jobs prune --older-than 30d"))
@click.option("--older-than", type=_Age(), required=True, metavar="AGE", help="How long ago it ended: 30d, 12h …")
@click.option("--errors", is_flag=True, help="Jobs in ERROR too. The BLOCK_ON_ERROR jobs behind them then go on.")
@click.option("--dry-run", is_flag=True, help="Count only.")
@json_option
@click.pass_context
def prune(context: click.Context, older_than: float, errors: bool, dry_run: bool, as_json: bool) -> None:
    """Remove old jobs that are over with their attempts, old events that were fanned out, and old epochs of the feed.

    In small transactions, while everything runs. An id or idempotencyKey that was removed counts as new if it comes
    again.
    """
    from fleet.jobs.prune import Pruned, prune

    def show(so_far: Pruned) -> None:
        click.echo(f"\r{number(so_far.jobs, 'job')}, {number(so_far.events, 'event')}", nl=False, err=True)

    before_ms = time.time_ns() // 1_000_000 - int(older_than * 1000)
    watched = sys.stderr.isatty() and not dry_run
    with store_of(context) as store:
        found = asdict(
            prune(
                store.engine, before_ms=before_ms, errors=errors, dry_run=dry_run, on_progress=show if watched else None
            )
        )
    if watched:
        click.echo("\r\033[K", nl=False, err=True)
    if as_json:
        show_json({**found, "dryRun": dry_run})
        return
    counts = ", ".join(f"{count} {what}" for what, count in found.items())
    click.echo(f"{'Would remove' if dry_run else 'Removed'} {counts}.")


commands = (jobs,)


def _check_choice(
    context: click.Context, ids: tuple[str, ...], group: str | None, pool: str | None, *, all_: bool = False
) -> None:
    named = group is not None or pool is not None or all_
    options = "/".join(one for parameter in context.command.params for one in parameter.opts if one.startswith("--"))
    if not ids and not named:
        raise click.UsageError(f"Which ones? Give ids, or {options}.", context)
    if ids and named:
        raise click.UsageError(f"Give ids, or {options}, not both.", context)


def _each(ids: tuple[str, ...], change: Callable[[str], bool], done: str, not_done: str) -> int:
    left = [id_ for id_ in dict.fromkeys(ids) if not change(id_)]
    for id_ in left:
        click.echo(f"unchanged: job {id_} {not_done}", err=True)
    _told(len(set(ids)) - len(left), done, "")
    return 1 if left else 0


def _told(count: int, done: str, none: str) -> int:
    if not count and none:
        raise FleetError(f"no matching job {none}")
    click.echo(f"{number(count, 'job')} {done}.")
    return 0
