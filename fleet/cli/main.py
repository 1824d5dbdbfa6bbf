"""The `fleet` command: its families, in the order that `fleet --help` lists them."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

import click

from fleet.cli import (
    breakers,
    check,
    config,
    dead,
    events,
    explain,
    feed,
    group,
    jobs,
    look,
    pool,
    processes,
    produce,
    pubsub,
    queue,
    report,
    server,
    sqs,
    subscriptions,
    topics,
    warnings,
)
from fleet.cli.base import Group, example, run_command


def _version() -> str:
    try:
        return version("fleet")
    except PackageNotFoundError:
        return "not installed"


@click.group(cls=Group, epilog=example("fleet up", "fleet status", "fleet send --help"))
@click.version_option(_version(), prog_name="fleet")
def fleet() -> None:
    """Deliver messages by HTTP: in order within a group, concurrently across groups."""


_FAMILIES = (
    processes, server, sqs, pubsub, produce, jobs, events, feed, report, look, explain, pool, queue, topics,
    subscriptions, group, dead, warnings, config, breakers, check,
)  # fmt: skip
for _family in _FAMILIES:
    for _command in _family.commands:
        fleet.add_command(_command)


def main() -> None:
    sys.exit(run_command(fleet))
