"""Commands of the pipeline: events become jobs, jobs become messages. Spark runs here, or where --master says."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleet import failpoint
from fleet.cli.base import Command, Group, become, example, json_option, settings_of, settings_without_redis
from fleet.cli.screen import Screen
from fleet.config.settings import Settings
from fleet.errors import FleetError, InvalidConfig
from fleet.local.pipeline import why_not

if TYPE_CHECKING:
    from spark.feed import Feed, Totals


_MOST_DAYS = 36_500


@click.group(cls=Group, epilog=example("fleet feed once", "fleet feed run --master 'local[2]'"))
def feed() -> None:
    """Turn events into jobs, and jobs that are due into messages (docs/pipeline.md)."""


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--master", metavar="URL", help="Where Spark runs; default: FLEET_FEED_MASTER, else local[*]."),
        click.option("--queue", metavar="URI", help="Where messages go; default: FLEET_FEED_QUEUE_URL."),
    ):
        command = option(command)
    return command


@feed.command(cls=Command, epilog=example("fleet feed once", "fleet feed once --queue sqlite:///queue.db?queue=jobs"))
@_options
@click.option("--quiet", is_flag=True, help="Only the last line.")
@json_option
@click.pass_context
def once(context: click.Context, master: str | None, queue: str | None, quiet: bool, as_json: bool) -> int:
    """Publish everything that is due, then end with one line of counts."""
    settings = _settings(context, master, queue)
    with _feed(settings, quiet=quiet) as (driver, screen):
        driver.setup.lead.lead(screen.say)
        driver.begin()
        _end(screen, driver.once(), as_json)
    return 0


@feed.command(cls=Command, epilog=example("fleet feed run --master spark://spark:7077"))
@_options
@json_option
@click.pass_context
def run(context: click.Context, master: str | None, queue: str | None, as_json: bool) -> int:
    """Publish what falls due, until Ctrl-C.

    Any number may run: one leads, the others stand by and publish nothing.
    """
    settings = _settings(context, master, queue)
    become(settings, "feed")
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with _feed(settings) as (driver, screen):
        driver.run(stopping)
        _end(screen, driver.totals, as_json)
    return 0


@feed.command(cls=Command, epilog=example("fleet feed recover"))
@_options
@click.pass_context
def recover(context: click.Context, master: str | None, queue: str | None) -> int:
    """Look for lost jobs once, and make them PENDING again.

    A job is lost if it was published longer ago than the threshold, no router has it, and the queue holds no message of
    it. `fleet feed run` does this by itself.
    """
    settings = _settings(context, master, queue)
    with _feed(settings) as (driver, screen):
        driver.setup.lead.lead(screen.say)
        driver.begin()
        found = driver.recover()
        click.echo(f"{found.lost} lost, {found.reset} go again")
    return 0


@feed.command(
    cls=Command,
    epilog=example("fleet feed backfill --batch-size 200000", "fleet feed backfill --subscription billing --days 30"),
)
@_options
@click.option("--batch-size", type=click.IntRange(1), help="Jobs in an epoch; default: all there is room for.")
@click.option("--subscription", metavar="NAME", help="First make its jobs of events that are older than it.")
@click.option("--days", type=click.FloatRange(0), help="With --subscription: only events of the last so many days.")
@json_option
@click.pass_context
def backfill(
    context: click.Context,
    master: str | None,
    queue: str | None,
    batch_size: int | None,
    subscription: str | None,
    days: float | None,
    as_json: bool,
) -> int:
    """Publish a large backlog in large epochs, and wait for room where the queue is full."""
    if days is not None and subscription is None:
        raise click.UsageError("--days goes with --subscription.", context)
    if days is not None and not days <= _MOST_DAYS:  # NaN too
        raise click.UsageError(f"--days is at most {_MOST_DAYS:,}.", context)
    settings = _settings(context, master, queue)
    settings = replace(settings, feed=replace(settings.feed, batch_size=batch_size or settings.feed.max_depth))
    with _feed(settings) as (driver, screen):
        driver.setup.lead.lead(screen.say)
        driver.begin()
        if subscription is not None:
            since_ms = 0 if days is None else time.time_ns() // 1_000_000 - int(days * 86_400_000)
            driver.look_back(subscription, since_ms=since_ms)
        _end(screen, driver.once(wait_for_room=True), as_json)
    return 0


@feed.command(cls=Command, epilog=example("fleet feed explain 01K97FHM11EKYSXT135MVM6AC7"))
@click.argument("job")
@click.pass_context
def explain(context: click.Context, job: str) -> int:
    """Say whether a job goes with the next epoch, or what holds it back."""
    # Here, as in store.py: it takes a fifth of a second that no other command should wait for.
    from fleet.jobs.store import open_store
    from spark.explain import explain as explained

    settings = settings_without_redis(context)
    store = open_store(settings)
    try:
        said = explained(store.engine, job, now_ms=time.time_ns() // 1_000_000, window=settings.feed.window)
    finally:
        store.close()
    if said is None:
        raise FleetError(f"there is no job {job}")
    click.echo(said)
    return 0


@feed.command(cls=Command, epilog=example("fleet feed pack --out cluster"))
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="The folder for the files."
)
def pack(out: Path) -> int:
    """Make the files that spark-submit gives to a cluster: our code, the packages it needs, the job.

    The packages are those installed here, without PySpark. They fit one minor version of Python and one kind of
    machine, which environment.txt names. What has not changed is not made again.
    """
    from spark.pack import pack as packed

    done = packed(out)
    for file in (done.code, done.environment, done.job, done.listing):
        click.echo(f"{file.stat().st_size / 1e6:8.1f} MB  {file}")
    click.echo(f"for {done.fits}" + ("" if done.is_new else "; the packages were there already"))
    return 0


commands = (feed,)


def _settings(context: click.Context, master: str | None, queue: str | None) -> Settings:
    settings = settings_of(context)
    failpoint.arm_if(settings.failpoint)
    from spark.cluster import submitted

    if master is not None and submitted():
        raise click.UsageError("Give --master to spark-submit, before fleet_job.py.", context)
    chosen = replace(settings.feed, master=master or settings.feed.master, queue_url=queue or settings.feed.queue_url)
    return replace(settings, feed=chosen)


@contextmanager
def _feed(settings: Settings, *, quiet: bool = False) -> Iterator[tuple[Feed, Screen]]:
    try:
        from spark.cluster import submitted
        from spark.feed import opened
    except ImportError as error:
        raise InvalidConfig(f"the feed needs Spark: install fleet[spark] ({error})") from error
    if settings.feed.master.startswith("local") and not submitted() and (missing := why_not(os.environ)):
        raise InvalidConfig(f"the feed does not run: {missing}")
    screen = Screen(quiet=quiet)
    try:
        with opened(settings, master=settings.feed.master, say=screen.say, show=screen.show) as driver:
            yield driver, screen
    finally:
        screen.clear()


def _end(screen: Screen, totals: Totals, as_json: bool) -> None:
    screen.clear()
    if as_json:
        # One line, whatever came before it: a program can read the last line of a log.
        click.echo(json.dumps(totals.document(), ensure_ascii=False))
    else:
        click.echo(totals.line())
