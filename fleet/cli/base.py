"""What all commands share: the two options that every command takes, settings made of them, and errors in one line."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from fleet import logs
from fleet.config.settings import RedisSettings, Settings, load
from fleet.errors import FleetError, NotUp, StateUnavailable
from fleet.local.embedded_redis import find_running
from fleet.sources.base import Surroundings
from fleet.sources.open import surround
from fleet.state.connect import check_url

T = TypeVar("T")


@dataclass
class Choices:
    """What the command line chose, before or after the command's name; the later one wins."""

    redis: str | None = None
    config: str | None = None


def _remember(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None and option.name is not None:
        setattr(context.ensure_object(Choices), option.name, value)


def _remember_redis(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        # A usage error, whatever the command: some would ask nothing of Redis, and some only after a while.
        try:
            check_url(value)
        except StateUnavailable as error:
            raise click.BadParameter(str(error), context, option) from None
    _remember(context, option, value)


def _shared_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--redis"],
            metavar="URL",
            expose_value=False,
            callback=_remember_redis,
            help="Where the fleet's state is (or FLEET_REDIS_URL); without it the Redis that `fleet up` runs here.",
        ),
        click.Option(
            ["--config"],
            metavar="FILE|URL",
            expose_value=False,
            callback=_remember,
            help="fleet.toml or a router configuration (or FLEET_CONFIG).",
        ),
    ]


class Command(click.Command):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params = [*self.params, *_shared_options()]


class Group(click.Group):
    command_class = Command
    group_class = type

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params = [*self.params, *_shared_options()]


def example(*lines: str) -> str:
    """The end of a command's help."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def settings_without_redis(context: click.Context) -> Settings:
    """For commands that bring their own Redis or need none."""
    choices = context.ensure_object(Choices)
    return _surrounded(load(config=choices.config, redis_url=choices.redis))


def settings_of(context: click.Context) -> Settings:
    """For commands that speak to the fleet: with a Redis, or an error that says how to name one."""
    settings = settings_without_redis(context)
    if settings.redis.url:
        return settings
    running = find_running(settings.data_dir)
    if running is None:
        raise NotUp(
            f"no Redis: name one with --redis or FLEET_REDIS_URL (and no `fleet up` is running in {settings.data_dir})"
        )
    return _surrounded(dataclasses.replace(settings, redis=RedisSettings(url=running)))


def _surrounded(settings: Settings) -> Settings:
    surround(Surroundings(redis_url=settings.redis.url, sqs_endpoint=settings.sqs.endpoint_override))
    return settings


def become(settings: Settings, process: str) -> None:
    """This command is a long-running process from here on: it logs."""
    logs.set_up(level=settings.log.level, process=process)
    for remark in settings.remarks:
        logs.remark(remark)


async def fetch_config(source: str) -> bytes:
    from coordinator.syncer.fetch import fetch

    return await asyncio.to_thread(fetch, source)


def ask(question: Coroutine[Any, Any, T]) -> T:
    """Run one asynchronous question to its end."""
    return asyncio.run(question)


def run_command(command: Callable[..., Any]) -> int:
    """Run a click command; returns the exit code, with at most one line of error on stderr."""
    try:
        result = command(prog_name="fleet", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        name = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "fleet"
        hint = f" (see {name} --help)" if isinstance(error, click.UsageError) else ""
        return _failed(f"{name}: {error.format_message()}{hint}", error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:
        # The reader of our output has seen enough. The interpreter's last flush must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except FleetError as error:
        return _failed(f"fleet: {error}", 1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _failed(f"fleet: {where}{error.strerror or error}", 1)
    return result if isinstance(result, int) else 0


def _failed(text: str, code: int) -> int:
    click.echo(" ".join(text.split()), err=True)
    return code
