"""What the commands of the job store share: the store, files of lines, and how they end."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.base import settings_without_redis
from fleet.cli.table import show_json, tell_some
from fleet.jobs.add import Total

if TYPE_CHECKING:
    from fleet.jobs.store import JobStore

_REFUSALS_NAMED = 10

file_option = click.option(
    "--file", metavar="NDJSON", type=click.File("rb", lazy=False), required=True, help="One a line; - for stdin."
)
limit_option = click.option("--limit", type=click.IntRange(0), default=100, show_default=True, help="0 for all.")


@contextlib.contextmanager
def store_of(context: click.Context) -> Iterator[JobStore]:
    """Needs no Redis: jobs can be added while no process of the fleet runs."""
    # Here, not above: importing SQLAlchemy takes a fifth of a second, and most commands do not need it.
    from fleet.jobs.store import open_store

    store = open_store(settings_without_redis(context), connections=1)
    try:
        yield store
    finally:
        store.close()


@contextlib.contextmanager
def progress() -> Iterator[Callable[[Total], None] | None]:
    """A counter in place, if somebody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        yield lambda total: click.echo(f"\r{total.added:,} added", nl=False, err=True)
    finally:
        click.echo("\r\033[K", nl=False, err=True)


def tell(total: Total, *, as_json: bool) -> int:
    """Returns the exit code: 1 if a line was refused."""
    if as_json:
        shown: dict[str, Any] = {"added": total.added, "known": total.known, "refused": len(total.refusals)}
        refusals = [{"line": line, "error": why} for line, why in total.refusals]
        show_json({**shown, "ids": total.ids, "refusals": refusals})
        return 1 if total.refusals else 0
    named = [f"line {line}: {why}" for line, why in total.refusals[:_REFUSALS_NAMED]]
    tell_some("refused", named, len(total.refusals))
    parts = [f"{total.added} added"]
    parts += [f"{total.known} were there already"] if total.known else []
    parts += [f"{len(total.refusals)} refused"] if total.refusals else []
    click.echo(", ".join(parts))
    return 1 if total.refusals else 0
