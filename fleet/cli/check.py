"""Commands that judge: a run by its journals, a configuration, this machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from fleet.cli.base import Command, Group, ask, example, fetch_config, json_option, settings_without_redis
from fleet.cli.table import show_json
from fleet.config import sources as config_sources
from fleet.errors import InvalidConfig
from fleet.operate.verify import verify as verify_journals
from fleet.sources.base import Surroundings
from fleet.sources.check import haste_of, refusal_of
from fleet.sources.open import surround
from fleet.words import number

_SOME_REDIS = "redis://127.0.0.1:6379/0"


@click.command(cls=Command, epilog=example("fleet verify sent.ndjson deliveries.ndjson --duplicates 10"))
@click.argument("journals", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--duplicates", type=click.IntRange(0), help="How many are allowed; without it any number.")
@json_option
def verify(journals: tuple[Path, ...], duplicates: int | None, as_json: bool) -> int:
    """Check journals for loss, disorder and overlap.

    JOURNALS are those of `fleet send`, `fleet seed` and `fleet endpoint`, in any order.

    Exits with 1 if anything but duplicates is found, or more duplicates than allowed.
    """
    verdict = verify_journals(journals, duplicates_allowed=duplicates)
    if as_json:
        show_json(verdict.to_json())
    else:
        click.echo(verdict.table())
    return verdict.exit_code


@click.command(cls=Command, epilog=example("fleet doctor", "fleet doctor --redis redis://redis:6379/0 --json"))
@json_option
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> int:
    """Say what is missing or misconfigured here.

    Exits with 1 if something fails.
    """
    # Here, not above: it imports what it examines, and no other command needs all of that.
    from fleet.local.doctor import Finding, examine

    settings = settings_without_redis(context)

    async def question() -> list[Finding]:
        return [finding async for finding in examine(settings, fetch_config)]

    findings = ask(question())
    if as_json:
        show_json([finding.to_json() for finding in findings])
    else:
        for finding in findings:
            click.echo(f"{finding.level:<5} {finding.subject:<9} {finding.text}")
    return 1 if any(finding.level == "fail" for finding in findings) else 0


@click.group(cls=Group, epilog=example("fleet config check router.json", "fleet config show"))
def config() -> None:
    """The router configuration: queues and pools."""


@config.command(
    epilog=example("fleet config check router.json", "fleet config check https://config.example/router.json")
)
@click.argument("source", metavar="FILE|URL", required=False)
@json_option
@click.pass_context
def check(context: click.Context, source: str | None, as_json: bool) -> int:
    """Name everything that is wrong with a configuration.

    Reads it as a syncer would, and changes nothing. Without FILE|URL it reads what --config, FLEET_CONFIG
    or fleet.toml name.
    """
    settings = settings_without_redis(context)
    if source is not None:
        chosen = source if "://" in source else str(Path(source).absolute())
        settings = dataclasses.replace(settings, config=dataclasses.replace(settings.config, source=chosen, inline=b""))
    if not config_sources.is_given(settings.config):
        raise click.UsageError("Nothing to check: name a FILE or URL.", context)
    try:
        found = ask(config_sources.read(settings.config, fetch_config))
    except InvalidConfig as error:
        if not as_json:
            raise
        show_json({"ok": False, "error": str(error), "remarks": [], "queues": [], "pools": []})
        return 1
    queues, pools = [queue.name for queue in found.queues], [pool.code for pool in found.pools]
    # Whoever runs it has a Redis. Which one that is makes no difference: nobody connects.
    surround(Surroundings(redis_url=settings.redis.url or _SOME_REDIS, sqs_endpoint=settings.sqs.endpoint_override))
    # Only what needs no look at the queues: they need not be reachable from here, and are not asked.
    remarks = list(found.remarks)
    for queue in found.queues:
        reasons = refusal_of(queue), haste_of(queue, settings.lease.ttl_ms)
        remarks += [f"queue {queue.name}: {why}" for why in reasons if why]
    if as_json:
        show_json({"ok": True, "error": None, "remarks": remarks, "queues": queues, "pools": pools})
    else:
        for remark in remarks:
            click.echo(f"warn: {remark}")
        click.echo(f"ok: {number(len(queues), 'queue')}, {number(len(pools), 'pool')}")
    return 0


commands = (verify, doctor)  # `config` is a family of its own
