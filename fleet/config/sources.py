"""The sources of the router configuration that the settings name: read once, the way the syncer keeps reading them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from fleet.config.router import RouterConfig, merge, parse_router_config, shown_uri
from fleet.config.settings import ConfigSettings
from fleet.errors import InvalidConfig

Fetch = Callable[[str], Awaitable[bytes]]


def sources(config: ConfigSettings) -> list[str]:
    return [source for source in config.source.split(",") if source]


def is_given(config: ConfigSettings) -> bool:
    return bool(config.source or config.inline)


def check_files(config: ConfigSettings) -> None:
    """Raise InvalidConfig for files that cannot be read or are wrong: waiting may mend a URL, but not a file."""
    failures = []
    for source in sources(config):
        if "://" not in source:
            try:
                _parse(source, Path(source).read_bytes())
            except OSError as error:
                failures.append(f"{source}: {error.strerror}")
            except InvalidConfig as error:
                failures.append(str(error))
    if failures:
        raise InvalidConfig("; ".join(failures))
    if config.inline:
        parse_router_config(config.inline)


async def read(config: ConfigSettings, fetch: Fetch) -> RouterConfig:
    """What a syncer would publish, or InvalidConfig with what is wrong in each of its sources."""
    found, failures = [], []
    for source in sources(config):
        try:
            found.append(_parse(source, await fetch(source)))
        except InvalidConfig as error:
            failures.append(str(error))
    if failures:
        raise InvalidConfig("; ".join(failures))
    if config.inline:
        found.append(parse_router_config(config.inline))
    return merge(found)


def _parse(source: str, data: bytes) -> RouterConfig:
    try:
        return parse_router_config(data)
    except InvalidConfig as error:
        raise InvalidConfig(f"{shown_uri(source)}: {error}") from error
