"""`fleet server`."""

from __future__ import annotations

import os

import click

from fleet.cli.base import Command, become, example, settings_of

PORT = click.IntRange(0, 65535)


@click.command(cls=Command, epilog=example("fleet server", "FLEET_SERVER_TOKEN=… fleet server --host 0.0.0.0"))
@click.option("--host", help="Default: FLEET_SERVER_HOST, else 127.0.0.1. Any other needs FLEET_SERVER_TOKEN.")
@click.option("--port", type=PORT, help="Default: FLEET_SERVER_PORT, else 8420. 0: any free one.")
@click.pass_context
def server(context: click.Context, host: str | None, port: int | None) -> int:
    """Answer over HTTP: health, monitoring, metrics, warnings, messages in."""
    from fleet.server.main import run

    settings = settings_of(context)
    become(settings, f"server-{os.getpid()}")
    own = settings.server
    return run(settings, own.host if host is None else host, own.port if port is None else port)


commands = (server,)
