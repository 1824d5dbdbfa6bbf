"""The way to the fleet's Redis, for commands that change something and for those that only look."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import click

from fleet.cli.base import settings_of
from fleet.state import present
from fleet.state.connect import Client, connected


@contextlib.asynccontextmanager
async def fleet_of(context: click.Context) -> AsyncIterator[Client]:
    async with connected(settings_of(context).redis.url) as client:
        yield client


@contextlib.asynccontextmanager
async def reading(context: click.Context) -> AsyncIterator[Client]:
    """While Redis refuses writes, they show what can be read, and say so in a line on stderr."""
    async with connected(settings_of(context).redis.url) as client:
        yield client
        if refused := await present.refused(client):
            click.echo(f"! {present.in_words(refused)}", err=True)
