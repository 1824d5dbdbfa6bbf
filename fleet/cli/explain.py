"""The command that says why something is not moving."""

from __future__ import annotations

import shutil
import textwrap
import time

import click

from fleet.cli.base import Command, ask, example, json_option
from fleet.cli.reading import reading
from fleet.cli.table import show_json
from fleet.operate import views
from fleet.operate.explain import Explainer
from fleet.operate.explanation import Explanation
from fleet.words import moment, span


@click.command(cls=Command, epilog=example("fleet explain order-1", "fleet explain 01K97FHM11EKYSXT135MVM6AC7 --json"))
@click.argument("subject", metavar="MESSAGE_ID|GROUP")
@click.option("--pool", metavar="CODE", help="Only what is in this pool, or would go there.")
@json_option
@click.pass_context
def explain(context: click.Context, subject: str, pool: str | None, as_json: bool) -> int:
    """Say why a message or a group is not moving.

    Says what it waits for, and until when. If there is a message of that id it is meant, else the group of that name.
    Exits with 1 if neither is known.
    """

    async def question() -> Explanation:
        async with reading(context) as client:
            config = (await views.configuration(client))[1]
            return await Explainer(client=client, config=config, pool=pool).explain(subject)

    found = ask(question())
    if as_json:
        show_json(found.to_json())
    else:
        _show(found)
    return 1 if found.state == "UNKNOWN" else 0


def _show(found: Explanation) -> None:
    width = min(shutil.get_terminal_size((100, 24)).columns, 100)
    until = "no time can be named"
    if found.until_ms is not None:
        left_s = found.until_ms / 1000 - time.time()
        until = f"{moment(found.until_ms)}{f', in {span(left_s)}' if left_s > 0 else ''}"
    for title, text in (("State", found.state), ("Waits for", found.waits_for), ("Until", until)):
        click.echo(textwrap.fill(text, width, initial_indent=f"{title:<11}", subsequent_indent=" " * 11))
    click.echo()
    for sentence in found.details:
        click.echo(textwrap.fill(sentence, width, subsequent_indent="  ", break_long_words=False))


commands = (explain,)
