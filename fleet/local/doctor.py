"""What is missing or misconfigured on this machine: one line per finding."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pycurl

from fleet.config import sources as config_sources
from fleet.config.difference import difference
from fleet.config.router import RouterConfig, parse_router_config
from fleet.config.settings import Settings
from fleet.config.sources import Fetch
from fleet.errors import FleetError
from fleet.local.embedded_redis import find_executable, find_running
from fleet.sources.check import haste_of
from fleet.state import observe
from fleet.state.connect import connected
from fleet.state.registry import Registry
from fleet.state.sentinel import ASK_WITHIN_S, Sentinels, View, is_sentinel, parse
from fleet.state.url import safe_url, why_not
from fleet.state.writes import refusal
from fleet.words import number

Level = Literal["ok", "warn", "fail"]

_LEAST_PYTHON = (3, 11)
_LEAST_SQLITE = (3, 35)
_CLOCK_OFF_MS = 1000
_LOOK_AT = {
    "NOREPLICAS": "its replicas (`redis-cli INFO replication`) and min-replicas-to-write",
    "MISCONF": "its disk and its log: it cannot save",
    "READONLY": "who the master is: this is a replica",
    "NOPERM": "the rights of the user (deploy/redis.acl)",
}
"""What to look at when writes are refused, by the code of the answer."""


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    subject: str
    text: str

    def to_json(self) -> dict[str, str]:
        return {"level": self.level, "subject": self.subject, "text": self.text}


async def examine(settings: Settings, fetch: Fetch) -> AsyncIterator[Finding]:
    """Each check runs by itself: one that fails hides no other."""
    yield _python()
    yield _libcurl()
    yield _sqlite(settings.data_dir)
    yield _data_dir(settings.data_dir)
    for remark in settings.remarks:
        yield Finding("warn", "settings", remark)
    async for finding in _redis(settings):
        yield finding
    async for finding in _config(settings, fetch):
        yield finding


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _LEAST_PYTHON:
        return Finding("fail", "python", f"{version}; 3.11 or later is needed")
    return Finding("ok", "python", version)


def _libcurl() -> Finding:
    info = pycurl.version_info()
    version, features = info[1], info[4]
    missing = [
        name for name, flag in (("HTTP/2", pycurl.VERSION_HTTP2), ("TLS", pycurl.VERSION_SSL)) if not features & flag
    ]
    if "TLS" in missing:
        return Finding("fail", "libcurl", f"{version} without TLS: https endpoints cannot be called")
    if missing:
        return Finding("warn", "libcurl", f"{version} without HTTP/2: https endpoints are called with HTTP/1.1")
    return Finding("ok", "libcurl", f"{version}, HTTP/2, {info[5]}, Python has {ssl.OPENSSL_VERSION.split(' ')[0]}")


def _sqlite(directory: Path) -> Finding:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < _LEAST_SQLITE:
        return Finding("fail", "sqlite", f"{version}; {'.'.join(map(str, _LEAST_SQLITE))} or later is needed")
    try:
        with _scratch(directory) as folder, contextlib.closing(sqlite3.connect(folder / "wal.db")) as db:
            (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    except (OSError, sqlite3.Error) as error:
        return Finding("warn", "sqlite", f"{version}; WAL not tried: {error}")
    if mode != "wal":
        return Finding("fail", "sqlite", f"{version}; no WAL on the disk of {directory} (a network disk?)")
    return Finding("ok", "sqlite", f"{version}, WAL works")


def _data_dir(directory: Path) -> Finding:
    try:
        with _scratch(directory) as folder:
            (folder / "probe").write_bytes(b"x")
    except OSError as error:
        return Finding("fail", "data", f"{directory} cannot be written: {error.strerror}")
    stat = os.statvfs(_existing(directory))
    free_mb = stat.f_bavail * stat.f_frsize // 2**20
    if free_mb < 256:
        return Finding("warn", "data", f"{directory} has {free_mb} MB left")
    return Finding("ok", "data", f"{directory} can be written, {free_mb:,} MB free")


@contextlib.contextmanager
def _scratch(directory: Path) -> Iterator[Path]:
    """A folder on the same disk that is gone afterwards; the directory itself is not created."""
    with tempfile.TemporaryDirectory(prefix=".fleet-doctor-", dir=_existing(directory)) as folder:
        yield Path(folder)


def _existing(directory: Path) -> Path:
    return next(path for path in (directory, *directory.absolute().parents) if path.is_dir())


async def _redis(settings: Settings) -> AsyncIterator[Finding]:
    try:
        url = settings.redis.url or find_running(settings.data_dir)
    except FleetError as error:
        yield Finding("fail", "redis", str(error))
        return
    if not url:
        program = find_executable()
        if program is None:
            yield Finding("fail", "redis", "none is named, and no redis-server is here for `fleet up` to start")
        else:
            yield Finding("ok", "redis", f"none is named; `fleet up` starts {program}")
        return
    if is_sentinel(url):
        yield await _sentinels(url)
    try:
        async with connected(url) as client:
            servers = await observe.servers(client)
            refused = await refusal(client)
            offset_ms = await observe.clock_offset_ms(client)
    except FleetError as error:
        yield Finding("fail", "redis", str(error))
        return
    versions = ", ".join(sorted({server.version for server in servers}))
    nodes = f"{number(len(servers), 'node')}, " if len(servers) > 1 else ""
    which = f"{nodes}{versions} at {safe_url(url)}"
    if refused:
        look = _LOOK_AT.get(refused.partition(" ")[0], "its log, and what `redis-cli INFO` says")
        yield Finding("fail", "redis", f"{which} refuses writes: {refused.rstrip('.')}; look at {look}")
    else:
        yield Finding("ok", "redis", which)
    policies = {server.policy for server in servers} - {"", "noeviction"}
    if policies:
        yield Finding(
            "fail", "memory", f"maxmemory-policy is {', '.join(policies)}: messages may vanish; set noeviction"
        )
    elif not all(server.max_bytes for server in servers):
        yield Finding("warn", "memory", "noeviction, but no maxmemory: Redis may grow until the machine kills it")
    else:
        yield Finding("ok", "memory", f"noeviction, maxmemory {min(s.max_bytes for s in servers) // 2**20:,} MB")
    # Leases do not depend on the clock; times in lists and journals do.
    if abs(offset_ms) > _CLOCK_OFF_MS:
        yield Finding(
            "warn", "clock", f"{abs(offset_ms) / 1000:.1f} s {'behind' if offset_ms > 0 else 'ahead of'} Redis"
        )
    else:
        yield Finding("ok", "clock", f"within {max(1, round(abs(offset_ms)))} ms of Redis")


async def _sentinels(url: str) -> Finding:
    try:
        asked = Sentinels(parse(url), timeout_s=ASK_WITHIN_S)
    except ValueError as error:
        return Finding("fail", "sentinel", f"not a Redis URL: {safe_url(url)} ({why_not(url, error)})")
    try:
        said = await asked.look()
    finally:
        await asked.aclose()
    views = [view for view in said.values() if isinstance(view, View)]
    errors = sorted(f"{name}: {error}" for name, error in said.items() if isinstance(error, Exception))
    text = f"{len(views)} of {len(said)} answer"
    if not views:
        return Finding("fail", "sentinel", f"{text} for the master {asked.address.master}: {'; '.join(errors)}")
    newest = max(views, key=lambda view: view.epoch)
    text += f", quorum {newest.quorum}; master {asked.address.master} is {newest.host}:{newest.port}"
    replicas = number(newest.replicas, "replica")
    text += f", {replicas}" if newest.alive == newest.replicas else f", {newest.alive} of {replicas} alive"
    doubts = errors + [
        f"{view.sentinel}: it is {view.host}:{view.port}"
        for view in views
        if (view.host, view.port) != (newest.host, newest.port)
    ]
    if newest.is_down:
        doubts.append("it is down")
    if not newest.alive:
        doubts.append("no replica is alive: no failover is possible")
    if len(views) < newest.quorum or 2 * len(views) <= newest.others + 1:
        doubts.append("too few to fail over")
    return Finding("warn" if doubts else "ok", "sentinel", "; ".join([text, *doubts]))


async def _config(settings: Settings, fetch: Fetch) -> AsyncIterator[Finding]:
    if not config_sources.is_given(settings.config):
        yield Finding("warn", "config", "none is given; `fleet up` makes a queue `default`, other processes wait")
        return
    try:
        config = await config_sources.read(settings.config, fetch)
    except FleetError as error:
        yield Finding("fail", "config", str(error))
        return
    for remark in config.remarks:
        yield Finding("warn", "config", remark)
    for queue in config.queues:
        if why := haste_of(queue, settings.lease.ttl_ms):
            yield Finding("warn", "config", f"queue {queue.name}: {why}")
    yield Finding("ok", "config", f"{number(len(config.queues), 'queue')}, {number(len(config.pools), 'pool')}")
    if (differs := await _other_than_in_force(settings, config)) is not None:
        yield differs


async def _other_than_in_force(settings: Settings, config: RouterConfig) -> Finding | None:
    """Of several syncers one leads, and it may read other files than those on this machine."""
    try:
        url = settings.redis.url or find_running(settings.data_dir)
        if not url:
            return None
        async with connected(url) as client:
            found = await Registry(client).config()
            leader = (await observe.syncer_leader(client)).owner
        differs = difference(config, parse_router_config(found.body)) if found is not None else ""
    except FleetError:
        return None  # the check of Redis says so
    if not differs:
        return None
    who = f"that of {leader}" if leader else "the last one published"
    return Finding("warn", "config", f"not the one in force, which is {who} (`fleet config show`): {differs}")
