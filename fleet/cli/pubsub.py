"""`fleet pubsub`."""

from __future__ import annotations

import os
from dataclasses import replace

import click

from fleet.cli.base import Command, become, example, settings_of
from fleet.cli.server import PORT
from fleet.errors import FleetError

_FROM_OUTSIDE = ("google", "grpc")


@click.command(
    cls=Command,
    epilog=example(
        "fleet pubsub",
        "fleet pubsub --port 8085",
        "PUBSUB_EMULATOR_HOST=127.0.0.1:8085 python your_program.py",
    ),
)
@click.option("--host", help="Default: FLEET_PUBSUB_HOST, else 127.0.0.1. It asks nobody who he is.")
@click.option("--port", type=PORT, help="Default: FLEET_PUBSUB_PORT, else 8085. 0: any free one.")
@click.pass_context
def pubsub(context: click.Context, host: str | None, port: int | None) -> int:
    """Answer Google Pub/Sub: topics and subscriptions for its clients, by PUBSUB_EMULATOR_HOST.

    Streaming pull, ordering keys, dead letters, filters, seek. It needs Google's packages: scripts/setup pubsub.
    """
    try:
        from fleet.broker.pubsub.main import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _FROM_OUTSIDE:
            raise
        raise FleetError(f"the Pub/Sub door needs {error.name}, which scripts/setup pubsub installs") from error

    settings = settings_of(context)
    own = settings.pubsub
    own = replace(own, host=own.host if host is None else host, port=own.port if port is None else port)
    become(settings, f"pubsub-{os.getpid()}")
    return run(replace(settings, pubsub=own))


commands = (pubsub,)
