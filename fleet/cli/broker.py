"""The way to topics and subscriptions, for the two families of commands that are about them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

import click

from fleet.broker.core import Broker
from fleet.broker.errors import InvalidArgument
from fleet.cli.base import settings_of
from fleet.cli.reading import reading


@contextlib.asynccontextmanager
async def broker_of(context: click.Context) -> AsyncIterator[Broker]:
    async with Broker.connected(settings_of(context).redis.url) as broker:
        yield broker


@contextlib.asynccontextmanager
async def looking(context: click.Context) -> AsyncIterator[Broker]:
    """To look only: also while Redis refuses writes."""
    async with reading(context) as client:
        yield Broker(client)


@contextlib.contextmanager
def called_rightly(context: click.Context) -> Iterator[None]:
    """What can never be accepted is a wrong call."""
    try:
        yield
    except InvalidArgument as error:
        raise click.UsageError(str(error), context) from None
