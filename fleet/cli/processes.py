"""Commands that become a process of the fleet, or start several.

Each imports what it runs only when it runs: other commands, and --help, should not wait for that.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleet.cli.base import Command, become, example, fetch_config, settings_of, settings_without_redis
from fleet.cli.server import PORT
from fleet.operate.send import SAMPLE_PORT
from fleet.state.connect import connected

if TYPE_CHECKING:
    from fleet.local.supervise import Supervisor

COUNT = click.IntRange(1, 256)
_PORTS = 65_536
metrics_port_option = click.option(
    "--metrics-port", type=click.IntRange(1, _PORTS - 1), help="Show this process's metrics at 127.0.0.1:PORT/metrics."
)


def check_metrics_ports(context: click.Context, first: int | None, processes: int) -> None:
    """Here, not by the processes: a supervisor would start again and again what can have no port."""
    if first is not None and first + processes > _PORTS:
        text = (
            f"--metrics-port {first}: {processes} processes take the ports from there on, and the last is {_PORTS - 1}."
        )
        raise click.UsageError(text, context)
    if first is not None and processes > 1:
        from fleet.listening import listen

        for port in range(first, first + processes):
            listen("127.0.0.1", port).close()


@click.command(
    cls=Command, epilog=example("fleet up --workers 4", "fleet up --config router.json --redis redis://redis:6379/0")
)
@click.option("--workers", type=COUNT, default=2, show_default=True, help="Worker processes.")
@click.option("--coordinators", type=COUNT, default=1, show_default=True, help="Coordinator processes.")
@click.option("--port", type=PORT, help="The server's port; default: FLEET_SERVER_PORT, else 8420. 0: any free one.")
@click.option("--sqs-port", type=PORT, help="Run an SQS door there too, as 9324. 0: any free one.")
@click.pass_context
def up(context: click.Context, workers: int, coordinators: int, port: int | None, sqs_port: int | None) -> int:
    """Run everything on this machine until Ctrl-C.

    Starts a syncer, coordinators, workers and a server, restarts one that dies, and stops them in order. Starts the
    feed too, if the configuration has the queue that the feed writes to. Without --redis it brings a Redis of its own,
    kept in FLEET_DATA_DIR (.fleet); without --config a queue `default` in a file beside it, and one for dispatch jobs.
    """
    from fleet.local.up import up as run_up

    settings = settings_without_redis(context)
    if port is not None:
        settings = replace(settings, server=replace(settings.server, port=port))
    become(settings, "up")
    return run_up(
        settings,
        environment=os.environ,
        workers=workers,
        coordinators=coordinators,
        say=click.echo,
        fetch=fetch_config,
        sqs_port=sqs_port,
    )


@click.command(cls=Command, epilog=example("fleet coordinator --redis redis://redis:6379/0"))
@metrics_port_option
@click.pass_context
def coordinator(context: click.Context, metrics_port: int | None) -> int:
    """Take messages from the queues.

    They are acknowledged there once they are settled. Coordinators share the queues among themselves.
    """
    from coordinator.main import run

    settings = settings_of(context)
    become(settings, f"coordinator-{os.getpid()}")
    return run(settings, metrics_port)


@click.command(cls=Command, epilog=example("fleet worker --pool 'ORDERS-*' --pool DEFAULT-POOL --processes 4"))
@click.option("--pool", "pools", metavar="GLOB", multiple=True, help="Serve only these pools; may be repeated.")
@click.option("--processes", type=COUNT, default=1, show_default=True, help="Worker processes, restarted if they die.")
@metrics_port_option
@click.pass_context
def worker(context: click.Context, pools: tuple[str, ...], processes: int, metrics_port: int | None) -> int:
    """Deliver messages: from the pools in Redis to their endpoints.

    With several processes each has a metrics port of its own, from --metrics-port on.
    """
    check_metrics_ports(context, metrics_port, processes)
    settings = settings_of(context)
    if processes == 1:
        from workers.main import run

        become(settings, f"worker-{os.getpid()}")
        return run(settings, pools or ("*",), metrics_port)
    from fleet.local.supervise import Supervisor
    from fleet.local.up import environment_for, programs

    become(settings, f"workers-{os.getpid()}")
    arguments = [part for pool in pools for part in ("--pool", pool)]
    stage = programs("worker", processes, environment_for(settings, os.environ), *arguments, metrics_port=metrics_port)
    return asyncio.run(supervised(Supervisor(stages=[stage]), settings.redis.url))


async def supervised(supervisor: Supervisor, redis_url: str) -> int:
    from fleet.local.supervise import on_signals

    # A worker that Redis refuses would be started again and again. Fail once instead, as with a single process.
    async with connected(redis_url):
        pass
    on_signals(supervisor.stop)
    return await supervisor.run()


@click.command(cls=Command, epilog=example("fleet syncer --config https://config.example/router.json"))
@metrics_port_option
@click.pass_context
def syncer(context: click.Context, metrics_port: int | None) -> int:
    """Keep the configuration in Redis equal to its files and URLs.

    Exits with 1 when the first sync fails for good; later failures leave the last good configuration in force.
    """
    from coordinator.syncer.main import run

    settings = settings_of(context)
    become(settings, f"syncer-{os.getpid()}")
    return run(settings, metrics_port=metrics_port)


@click.command(cls=Command, epilog=example("fleet endpoint --latency-ms 50 --journal deliveries.ndjson"))
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=SAMPLE_PORT, show_default=True, help="0: any free one.")
@click.option("--latency-ms", type=click.FloatRange(0), default=0, help="How long each answer takes.")
@click.option("--fail", metavar="RATE", type=click.FloatRange(0, 1), default=0, help="The share answered 500, 0 to 1.")
@click.option("--fence", is_flag=True, help="Answer 412 to an epoch lower than one seen for the group.")
@click.option("--journal", type=click.Path(path_type=Path, dir_okay=False), help="Record every request in this file.")
@click.option("--quiet", is_flag=True, help="Do not print the address.")
def endpoint(
    host: str, port: int, latency_ms: float, fail: float, fence: bool, journal: Path | None, quiet: bool
) -> None:
    """Serve a sample endpoint for deliveries, until Ctrl-C."""
    from fleet.local.endpoint import EndpointOptions, run_endpoint

    options = EndpointOptions(host=host, port=port, latency_ms=latency_ms, fail_rate=fail, fence=fence, journal=journal)
    run_endpoint(options, on_listening=lambda url: None if quiet else click.echo(f"Listening at {url}"))


@click.command(cls=Command, epilog=example("fleet demo --messages 20000 --groups 500", "fleet demo --keep"))
@click.option("--messages", type=click.IntRange(1, 1_000_000), default=10_000, show_default=True, help="Events.")
@click.option("--groups", type=click.IntRange(1, 100_000), default=50, show_default=True)
@click.option("--keep", is_flag=True, help="Leave it running until Ctrl-C, to look around.")
@click.option(
    "--report", metavar="DIR", type=click.Path(path_type=Path), help="Default: demo-report/ in FLEET_DATA_DIR."
)
@click.pass_context
def demo(context: click.Context, messages: int, groups: int, keep: bool, report: Path | None) -> int:
    """Watch a whole fleet deliver events in order.

    Starts it in a temporary folder, adds events, and shows for each group what arrived: by way of fan-out, dispatch,
    queue, workers and server. Exits with 0 only if every event arrived, in the order of its group.
    """
    from fleet.local import demo as demonstration

    settings = settings_without_redis(context)
    become(settings, "demo")
    return demonstration.demo(
        settings,
        environment=os.environ,
        messages=messages,
        groups=groups,
        keep=keep,
        report_to=report or settings.data_dir / "demo-report",
    )


commands = (up, coordinator, worker, syncer, endpoint, demo)
