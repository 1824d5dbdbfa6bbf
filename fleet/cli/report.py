"""`fleet report`: what was delivered, as tables, plots and a page. Spark runs here, or where --master says."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import click

from fleet.cli.base import Command, example, json_option, settings_without_redis
from fleet.cli.table import show_json
from fleet.errors import InvalidConfig
from fleet.words import read_moment

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Since(click.ParamType[int]):
    """A time, as milliseconds since 1970."""

    name = "when"

    def convert(self, value: object, param: click.Parameter | None, context: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        said = str(value).strip()
        if ago := _AGO.fullmatch(said):
            return max(0, int((time.time() - float(ago[1]) * _SECONDS[ago[2]]) * 1000))
        try:
            return max(0, read_moment(said))
        except ValueError:
            self.fail(f"{said!r} is neither a time (2026-01-31, 2026-01-31T12:00) nor an age (24h, 7d)", param, context)


@click.command(
    cls=Command,
    epilog=example("fleet report", "fleet report --since 24h --out /srv/reports", "fleet report --journal got.ndjson"),
)
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Default: report/ in FLEET_DATA_DIR.")
@click.option(
    "--since", metavar="WHEN", type=Since(), default=0, help="24h, 7d, or a date; UTC unless it names a zone."
)
@click.option(
    "--journal", "journals", metavar="FILE", multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Of senders or endpoints; may be repeated.",
)  # fmt: skip
@click.option("--master", metavar="URL", help="Where Spark runs; default: FLEET_FEED_MASTER, else local[*].")
@click.option("--quiet", is_flag=True, help="Only the result.")
@json_option
@click.pass_context
def report(
    context: click.Context,
    out: Path | None,
    since: int,
    journals: tuple[Path, ...],
    master: str | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Report what was delivered: tables, plots and a page to read.

    Reads the attempts of the job store, and journals if any are named. Per endpoint, pool, group and hour: delivered,
    failed, retried, percentiles of latency and wait, and whether each group was in order.
    """
    settings = settings_without_redis(context)
    try:
        from spark.report.words import one_line
        from spark.steps.report import PAGE, Wanted
        from spark.steps.report import report as make
    except ImportError as error:
        raise InvalidConfig(f"the report needs Spark: install fleet[spark] ({error})") from error
    folder = (out or settings.data_dir / "report").absolute()
    say: Callable[[str], None] = (lambda _: None) if quiet else (lambda text: click.echo(f"{text} …", err=True))
    wanted = Wanted(out=folder, since_ms=since, journals=journals, master=master or settings.feed.master)
    found = make(settings, wanted, say=say)
    page = folder / PAGE
    if as_json:
        show_json({"out": str(folder), "page": str(page), **found.headline()})
    else:
        click.echo(one_line(found))
        click.echo(page)
    return 0


commands = (report,)
