"""Everything on this machine: an embedded Redis unless one is named, and the processes of the fleet around it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from fleet.config import sources as config_sources
from fleet.config.settings import ConfigSettings, RedisSettings, Settings
from fleet.config.sources import Fetch
from fleet.errors import InvalidConfig, StateError
from fleet.listening import listen
from fleet.local.embedded_redis import EmbeddedRedis
from fleet.local.supervise import Program, Supervisor, child_environment, fleet_command, on_signals
from fleet.local.up_feed import UpFeed
from fleet.server.door import Tokens
from fleet.sources.own import address as own
from fleet.sources.sqlite import address as sqlite
from fleet.state.connect import connected
from fleet.state.registry import Registry
from fleet.state.url import safe_url
from fleet.words import number

log = logging.getLogger("fleet.supervisor")

SYNCER_STOPS_S = 5.0
COORDINATOR_STOPS_S = 15.0
SERVER_STOPS_S = 10.0
WORKER_STOPS_S = 35.0
"""More than a worker gives its requests in flight."""
DEFAULT_QUEUE = "default"
_LOOK_S = 0.1


def environment_for(settings: Settings, base: Mapping[str, str]) -> dict[str, str]:
    """An environment in which a child sees the settings that we see, wherever they came from."""
    environment = child_environment(
        base, FLEET_REDIS_URL=settings.redis.url, FLEET_DATA_DIR=str(settings.data_dir.absolute())
    )
    # The file and the sources that were chosen, named so that the child has nothing to look for.
    environment.pop("FLEET_CONFIG", None)
    if settings.file is not None:
        environment["FLEET_CONFIG"] = str(settings.file)
    if settings.config.source:
        environment["FLEET_CONFIG_SOURCE"] = settings.config.source
    return environment


def programs(
    role: str, count: int, environment: Mapping[str, str], *arguments: str, metrics_port: int | None = None
) -> list[Program]:
    """`count` programs of one role, each with a metrics port of its own, if one is given: from that one on."""
    times = {
        "syncer": SYNCER_STOPS_S,
        "coordinator": COORDINATOR_STOPS_S,
        "server": SERVER_STOPS_S,
        "sqs": SERVER_STOPS_S,
    }
    stop_within_s = times.get(role, WORKER_STOPS_S)
    return [
        Program(
            name=f"{role} {number}" if count > 1 else role,
            command=fleet_command(
                role, *arguments, *(["--metrics-port", str(metrics_port + number - 1)] if metrics_port else [])
            ),
            environment=environment,
            stop_within_s=stop_within_s,
        )
        for number in range(1, count + 1)
    ]


def with_default_config(settings: Settings) -> Settings:
    """If no configuration is given: one embedded queue beside the other data, and DEFAULT-POOL."""
    if config_sources.is_given(settings.config):
        return settings
    folder = settings.data_dir.absolute()
    file = folder / "default-config.json"
    body = router_config(queue=DEFAULT_QUEUE, file=folder / "queues.db", jobs_at=_own_feed_queue(settings))
    if not file.is_file() or file.read_text(encoding="utf-8") != body:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(body, encoding="utf-8")
    return dataclasses.replace(settings, config=_with_source(settings.config, str(file)))


def _with_source(config: ConfigSettings, source: str) -> ConfigSettings:
    return dataclasses.replace(config, source=source)


def _own_feed_queue(settings: Settings) -> str:
    """The queue that the default fleet reads to deliver dispatch jobs too. The address of any but our own may hold
    secrets."""
    uri = settings.feed.queue_url
    return uri if settings.feed.enabled and own.is_own(uri) else ""


def router_config(*, queue: str, file: Path, jobs_at: str = "") -> str:
    queues = [{"queueName": queue, "queueUri": sqlite.uri_of(sqlite.QueueAddress(file, queue))}]
    if jobs_at:
        queues.append({"queueName": own.name_of(jobs_at), "queueUri": jobs_at})
    return json.dumps({"queues": queues, "processingPools": []}, indent=2) + "\n"


class OwnRedis:
    """The embedded Redis of a supervised fleet: one that dies is started again at the same place."""

    def __init__(self, redis: EmbeddedRedis, *, on_failure: Callable[[StateError], None]) -> None:
        self._redis = redis
        self._on_failure = on_failure
        self._descriptor = -1

    def watch(self) -> None:
        assert self._redis.pid is not None
        self._descriptor = os.pidfd_open(self._redis.pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._on_end)

    def unwatch(self) -> None:
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _on_end(self) -> None:
        self.unwatch()
        log.error("the embedded Redis ended; it starts again")
        self._redis.stop()
        try:
            # This blocks the loop, but nothing in it can do anything without Redis.
            self._redis.start()
        except StateError as error:
            self._on_failure(error)
        else:
            self.watch()


def up(
    settings: Settings,
    *,
    environment: Mapping[str, str],
    workers: int,
    coordinators: int,
    say: Callable[[str], None],
    fetch: Fetch,
    sqs_port: int | None = None,
) -> int:
    """Run until a signal. Returns the exit code. `sqs_port`: with an SQS door there; 0 is any free one."""
    settings = with_default_config(settings)
    # What cannot work is said once, before anything runs that would say it again and again.
    config_sources.check_files(settings.config)
    if settings.redis.url:
        asyncio.run(_reach(settings.redis.url))
        return asyncio.run(_run(settings, None, environment, workers, coordinators, say, fetch, sqs_port))
    # Persistent: what was delivered and not yet acked at its source is still known after a restart.
    with EmbeddedRedis(directory=settings.data_dir, persist=True) as redis:
        settings = dataclasses.replace(settings, redis=RedisSettings(url=redis.url))
        return asyncio.run(_run(settings, redis, environment, workers, coordinators, say, fetch, sqs_port))


async def _reach(url: str) -> None:
    async with connected(url):
        return


async def _run(
    settings: Settings,
    redis: EmbeddedRedis | None,
    base: Mapping[str, str],
    workers: int,
    coordinators: int,
    say: Callable[[str], None],
    fetch: Fetch,
    sqs_port: int | None,
) -> int:
    environment = environment_for(settings, base)
    host, port = settings.server.host, settings.server.port
    # Said once and before anything runs, instead of by a server that starts again and again.
    Tokens.of(settings.server, host)
    with listen(host, port) as door:
        # The port that is free now stays the server's: messages of jobs on their way name it.
        port = int(door.getsockname()[1])
    doors = []
    if sqs_port is not None:
        with listen(settings.sqs.host, sqs_port) as door:
            sqs_port = int(door.getsockname()[1])
        doors = [programs("sqs", 1, environment, "--host", settings.sqs.host, "--port", str(sqs_port))]
    environment |= {"FLEET_SERVER_HOST": host, "FLEET_SERVER_PORT": str(port)}
    begun = asyncio.Event()

    async def is_final(program: Program, _code: int) -> bool:
        # Once there was a configuration, it stays in force whatever becomes of the syncer.
        return program.name == "syncer" and not begun.is_set() and await is_bad(settings.config, fetch)

    supervisor = Supervisor(
        stages=[
            programs("server", 1, environment, "--host", host, "--port", str(port)),
            *doors,
            programs("syncer", 1, environment),
            programs("coordinator", coordinators, environment),
            programs("worker", workers, environment),
        ],
        # Our Redis dies with us, and without it no child can end cleanly.
        orphan_signal=signal.SIGTERM if redis is None else signal.SIGKILL,
        is_final=is_final,
    )
    on_signals(supervisor.stop)

    def on_failure(error: StateError) -> None:
        log.error("%s", error)
        supervisor.exit_code = 1
        supervisor.stop()

    own = OwnRedis(redis, on_failure=on_failure) if redis is not None else None
    if own is not None:
        own.watch()
    supervisor.start()
    announcer = asyncio.get_running_loop().create_task(
        _announce(settings, redis is not None, supervisor, environment, workers, coordinators, say, begun, sqs_port)
    )
    try:
        return await supervisor.run()
    finally:
        announcer.cancel()
        await asyncio.gather(announcer, return_exceptions=True)
        if own is not None:
            own.unwatch()


async def is_bad(config: ConfigSettings, fetch: Fetch) -> bool:
    """Whether another syncer would fail the same way: by the configuration itself, rather than by Redis or a crash of
    ours."""
    try:
        await config_sources.read(config, fetch)
    except InvalidConfig as error:
        log.error("no configuration: %s", error)
        return True
    return False


async def _announce(
    settings: Settings,
    embedded: bool,
    supervisor: Supervisor,
    environment: Mapping[str, str],
    workers: int,
    coordinators: int,
    say: Callable[[str], None],
    begun: asyncio.Event,
    sqs_port: int | None,
) -> None:
    await _until(settings.redis.url, lambda registry: _our_syncer_has_read(registry, supervisor))
    begun.set()
    await until_ready(settings.redis.url, coordinators=coordinators, workers=workers, servers=1)
    where = f"embedded in {settings.data_dir.absolute()}" if embedded else safe_url(settings.redis.url)
    say(f"Server: {await _address(settings.redis.url, supervisor)}")
    if sqs_port is not None:
        say(f"SQS: http://{settings.sqs.host}:{sqs_port}")
    feed = UpFeed(settings=settings, supervisor=supervisor, environment=environment)
    await feed.look()
    say(
        f"Fleet is up: {number(coordinators, 'coordinator')}, {number(workers, 'worker')},"
        f"{' the feed,' if feed.runs else ''} Redis {where}."
        " Ctrl-C stops it."
    )
    await feed.keep_looking()


async def _address(url: str, supervisor: Supervisor) -> str:
    async with connected(url) as client:
        found = await _ours(Registry(client), supervisor, "server")
    return next((str(record["address"]) for record in found), "the address in its log")


async def _our_syncer_has_read(registry: Registry, supervisor: Supervisor) -> bool:
    return any(record["revision"] for record in await _ours(registry, supervisor, "syncer"))


async def _ours(registry: Registry, supervisor: Supervisor, role: str) -> list[dict[str, Any]]:
    """What our own processes say: others may belong to the same fleet."""
    own = (supervisor.pids().get(role), socket.gethostname())
    return [r for r in await registry.processes() if r["role"] == role and (r["pid"], r["host"]) == own]


async def until_ready(url: str, *, coordinators: int, workers: int, servers: int = 0) -> None:
    """Wait until a configuration is in force and that many processes say that they live."""
    wanted = {"syncer": 1, "coordinator": coordinators, "worker": workers, "server": servers}

    async def are_there(registry: Registry) -> bool:
        roles = [record["role"] for record in await registry.processes()]
        return bool(await registry.revision()) and all(roles.count(role) >= n for role, n in wanted.items())

    await _until(url, are_there)


async def _until(url: str, fact: Callable[[Registry], Awaitable[bool]]) -> None:
    while True:
        try:
            async with connected(url) as client:
                # Nothing signals a heartbeat.
                while not await fact(Registry(client)):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)
            return
        except StateError as error:
            log.debug("not ready: %s", error)
        await asyncio.sleep(_LOOK_S)
