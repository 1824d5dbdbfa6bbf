"""The demo: a whole fleet in a temporary folder, events through all of it, and what arrived.

events → fan-out → jobs → dispatch → queue → coordinator → worker → server → endpoint → report
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import logging
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fleet.config.settings import ConfigSettings, DatabaseSettings, RedisSettings, ServerSettings, Settings
from fleet.errors import FleetError, InvalidConfig
from fleet.jobs.records import NewEvent, Subscription
from fleet.local import pipeline
from fleet.local.demo_tally import DemoTally, Tail, table_of
from fleet.local.embedded_redis import EmbeddedRedis
from fleet.local.supervise import Program, Supervisor, fleet_command, on_signals
from fleet.local.up import environment_for, programs, until_ready
from fleet.local.up_feed import feed_program
from fleet.operate.journal import End, Journal
from fleet.operate.verify import Judgement, verify
from fleet.sources import ulid
from fleet.sources.base import Surroundings
from fleet.sources.open import open_source
from fleet.sources.own.address import uri_of
from fleet.words import number

QUEUE, POOL, SUBSCRIPTION = "dispatch", "DEMO", "demo"
WORKERS, CONCURRENCY = 2, 50
_WINDOW = 100
"""How much of one group is under way at a time: an epoch takes most of a second, so with a few messages it would
crawl."""
_READY_WITHIN_S, _STUCK_AFTER_S, _LOOK_S = 60.0, 60.0, 0.1
_SPARK_WITHIN_S = 240.0
"""It takes a few seconds on a quiet machine, and a minute on a busy one."""
_BATCH, _BATCH_EVERY_S = 200, 0.2
"""A steady stream: in one burst every latency would be that of the backlog."""
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""This Java lives for seconds: optimising for later would only slow them down."""
_NOT_OURS = ("FLEET_", "MESSAGE_ROUTER_", "MEDIATOR_HTTP_", "DISPATCH_SCHEDULER_", "SQS_ENDPOINT_OVERRIDE")


def demo(
    settings: Settings, *, environment: Mapping[str, str], messages: int, groups: int, keep: bool, report_to: Path
) -> int:
    """Returns the exit code: 0 only if all arrived in order."""
    if missing := pipeline.why_not(environment):
        raise InvalidConfig(f"the demo needs the pipeline: {missing}")
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="fleet-demo-"))
    try:
        with EmbeddedRedis(directory=folder) as redis:
            port = _free_port()
            own = dataclasses.replace(
                settings,
                data_dir=folder,
                file=_settings_file(folder, redis_url=redis.url, port=port),
                redis=RedisSettings(url=redis.url),
                database=DatabaseSettings(),
                config=ConfigSettings(source=str(_router_file(folder))),
                server=ServerSettings(port=port),
            )
            # What the caller's shell sets for another fleet must not apply to this one.
            clean = {name: value for name, value in environment.items() if not name.startswith(_NOT_OURS)}
            return asyncio.run(_Demo(own, folder, console, report_to.absolute()).run(clean, messages, groups, keep))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _router_file(folder: Path) -> Path:
    file = folder / "router.json"
    queues = [{"queueName": QUEUE, "queueUri": uri_of(QUEUE)}]
    pools = [{"code": POOL, "concurrency": CONCURRENCY}]
    file.write_text(json.dumps({"queues": queues, "processingPools": pools}, indent=2) + "\n", encoding="utf-8")
    return file


def _settings_file(folder: Path, *, redis_url: str, port: int) -> Path:
    file = folder / "fleet.toml"
    sections: dict[str, dict[str, str | int | float]] = {
        "redis": {"url": redis_url},
        "config": {"source": str(folder / "router.json")},
        "server": {"host": "127.0.0.1", "port": port},
        "feed": {"queue_url": uri_of(QUEUE), "window": _WINDOW, "shards": 2, "poll_interval_s": 0.1},
    }
    lines = [f"data_dir = {json.dumps(str(folder))}"]
    for name, values in sections.items():
        lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


class _Demo:
    def __init__(self, settings: Settings, folder: Path, console: Console, report_to: Path) -> None:
        self._settings = settings
        self._console = console
        self._folder = folder
        self._report_to = report_to
        self._journal = folder / "deliveries.ndjson"
        self._feed_log = folder / "feed.log"
        self._port = _free_port()
        self._tail = Tail(self._journal)
        self.tally = DemoTally()

    async def run(self, base: Mapping[str, str], messages: int, groups: int, keep: bool) -> int:
        # Its processes say what goes wrong; that they began and ended, the demo says itself.
        java = f"{base.get('JAVA_TOOL_OPTIONS', '')} {_QUICK_JAVA}".strip()
        environment = {
            **environment_for(self._settings, base), "FLEET_LOG_LEVEL": "WARNING", "JAVA_TOOL_OPTIONS": java
        }  # fmt: skip
        logging.getLogger("fleet").setLevel("WARNING")
        supervisor = Supervisor(
            stages=[
                [self._endpoint(environment), *programs("server", 1, environment)],
                programs("syncer", 1, environment),
                programs("coordinator", 1, environment),
                programs("worker", WORKERS, environment),
                # Each of its epochs logs a line, and Java adds a few of its own.
                [feed_program(environment, output=self._feed_log)],
            ],
            orphan_signal=signal.SIGKILL,
        )
        on_signals(supervisor.stop)
        supervising = asyncio.ensure_future(supervisor.run())
        work = asyncio.ensure_future(self._work(environment, messages, groups))
        try:
            await asyncio.wait({supervising, work}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                # Ctrl-C.
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                return supervisor.exit_code or 130
            if keep and not supervising.done():
                self._say_where_to_look()
                await supervising
            return work.result()
        finally:
            if not supervising.done():
                supervisor.stop()
            await supervising

    def _endpoint(self, environment: Mapping[str, str]) -> Program:
        command = fleet_command("endpoint", "--quiet", "--port", str(self._port), "--journal", str(self._journal))
        return Program(name="endpoint", command=command, environment=environment, stop_within_s=5.0)

    async def _work(self, environment: Mapping[str, str], messages: int, groups: int) -> int:
        began = time.monotonic()
        with self._step("Starting Redis, a server, a syncer, a coordinator, two workers and an endpoint"):
            try:
                async with asyncio.timeout(_READY_WITHIN_S):
                    await until_ready(self._settings.redis.url, coordinators=1, workers=WORKERS, servers=1)
            except TimeoutError as error:
                raise FleetError(f"the demo's processes were not ready within {_READY_WITHIN_S:g} s") from error
        events = self._events(messages, groups)
        with self._step("Starting Spark: the first event is on its way"):
            await asyncio.to_thread(self._add, [next(events)], subscribe=True)
            arrived = await self._follow(1, lambda _: None, patience_s=_SPARK_WITHIN_S)
        with self._progress(messages) as show:
            adding = asyncio.ensure_future(self._add_all(events))
            try:
                arrived = arrived and await self._follow(messages, show, adding)
            finally:
                adding.cancel()
        drained = arrived and await self._source_is_empty()
        self._console.print(table_of(self.tally))
        verdict = await asyncio.to_thread(self._verify)
        self._say(
            f"Verified by the journals: {verdict.accepted:,} of {verdict.sent:,} accepted, {verdict.lost:,} lost, "
            f"{verdict.inversions:,} out of order, {verdict.overlaps:,} at the same time, {verdict.duplicates:,} twice."
        )
        told = await self._report(environment)
        code = self._judge(messages, arrived=arrived, drained=drained, verdict=verdict)
        self._say(f"It took {time.monotonic() - began:.0f} s.")
        return code if told else 1

    # Events -----------------------------------------------------------------------------------------

    def _events(self, messages: int, groups: int) -> Iterator[NewEvent]:
        for place in range(messages):
            yield NewEvent(
                id=ulid.take(1, time.time_ns() // 1_000_000)[0],
                type="order:paid",
                msg_group=f"order-{place % groups + 1}",
                payload=json.dumps({"order": place % groups + 1, "step": place // groups + 1}),
            )

    def _add(self, events: list[NewEvent], *, subscribe: bool = False) -> None:
        # Here, not above: SQLAlchemy, which no other command needs, takes a fifth of a second to import.
        from fleet.jobs.store import open_store

        store = open_store(self._settings, connections=1)
        try:
            if subscribe:
                url = f"http://127.0.0.1:{self._port}/fast"
                store.subscribe(Subscription(name=SUBSCRIPTION, pattern="order:*", target_url=url, pool=POOL))
            # Before they can be taken.
            self.tally.sent(events, _now_ms())
            store.add_events(events)
        finally:
            store.close()

    async def _add_all(self, events: Iterator[NewEvent]) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while batch := list(itertools.islice(events, _BATCH)):
            await asyncio.to_thread(self._add, batch)
            due += _BATCH_EVERY_S
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def _follow(
        self,
        messages: int,
        show: Callable[[int], None],
        adding: asyncio.Future[None] | None = None,
        *,
        patience_s: float = _STUCK_AFTER_S,
    ) -> bool:
        """Wait until that many have arrived, or nothing more arrives. Returns whether they have."""
        loop = asyncio.get_running_loop()
        moved_at = loop.time()
        while self.tally.delivered < messages:
            if adding is not None and adding.done():
                adding.result()
            before = self.tally.delivered
            for record in self._tail.read():
                if isinstance(record, End):
                    self.tally.accepted(record)
            show(self.tally.delivered)
            if self.tally.delivered > before:
                moved_at = loop.time()
            elif loop.time() - moved_at > patience_s:
                return False
            # The endpoint is another process, and its journal a file: nothing tells us when it grows.
            await asyncio.sleep(_LOOK_S)
        return True

    # What became of them ----------------------------------------------------------------------------

    async def _source_is_empty(self) -> bool:
        """Whether the last acknowledgements reach the queue, too."""
        around = Surroundings(redis_url=self._settings.redis.url, sqs_endpoint="")
        source = open_source(QUEUE, uri_of(QUEUE), 1000, around=around)
        await source.open()
        try:
            async with asyncio.timeout(_STUCK_AFTER_S):
                while (depth := await source.depth()).waiting or depth.invisible:  # noqa: ASYNC110 (nobody tells)
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            return False
        finally:
            await source.close()
        return True

    def _verify(self) -> Judgement:
        """Judge by the jobs in the store, in the order in which their events were added."""
        from fleet.jobs.store import open_store

        store = open_store(self._settings, connections=1)
        try:
            jobs = store.jobs(limit=0)
        finally:
            store.close()
        places = sorted((self.tally.place_of(job.event_id or ""), job.id, job.msg_group) for job in jobs)
        sent = Journal(self._folder / "sent.ndjson", buffer_bytes=1 << 20)
        for place, job_id, group in places:
            sent.sent(job_id, group, place)
        sent.close()
        return verify([self._folder / "sent.ndjson", self._journal])

    async def _report(self, environment: Mapping[str, str]) -> bool:
        """Make it with the command that anybody would call. Returns whether it could be made."""
        command = fleet_command("report", "--quiet", "--out", str(self._report_to), "--journal", str(self._journal))
        with self._step("Writing the report"):
            process = await asyncio.create_subprocess_exec(
                *command, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, err = await process.communicate()
        if process.returncode != 0:
            self._console.print(f"[red]No report: {err.decode().strip().splitlines()[-1:]}[/red]")
            return False
        said, _, page = out.decode().strip().partition("\n")
        self._say(f"Report: {said}\n  {page}")
        return True

    def _judge(self, messages: int, *, arrived: bool, drained: bool, verdict: Judgement) -> int:
        total = self.tally.total
        if total.ok and total.sent == messages == verdict.accepted and drained and verdict.ok:
            self._console.print(
                f"[green]All {number(messages, 'event was', 'events were')} delivered, each group in order.[/green]"
            )
            return 0
        if not arrived:
            self._console.print(
                f"[red]{number(messages - total.delivered, 'event was', 'events were')} not delivered.[/red]"
            )
            self._say("\n".join(["The feed's last words:", *_last_lines(self._feed_log)]))
        elif not drained:
            self._console.print("[red]The queue still holds messages that were delivered.[/red]")
        else:
            self._console.print(f"[red]Something is wrong: {'; '.join(verdict.problems) or 'see the table'}.[/red]")
        return 1

    # Words --------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        # Printed as it is: no colours for numbers, and no breaks within an address.
        self._console.out(text, highlight=False)

    @contextlib.contextmanager
    def _step(self, what: str) -> Iterator[None]:
        if not self._console.is_terminal:
            self._say(f"{what} …")
            yield
            return
        with self._console.status(what):
            yield

    @contextlib.contextmanager
    def _progress(self, messages: int) -> Iterator[Callable[[int], None]]:
        columns = (TextColumn("Delivering"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        if not self._console.is_terminal:
            yield _counter(self._console, messages)
            return
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task("", total=messages)
            yield lambda done: progress.update(task, completed=done)

    def _say_where_to_look(self) -> None:
        self._say(
            f"It runs on: http://127.0.0.1:{self._settings.server.port}\n"
            "In another terminal:\n"
            f"  export FLEET_CONFIG='{self._settings.file}'\n"
            "  fleet status\n"
            '  echo \'{"type": "order:paid", "group": "order-1", "payload": {}}\' | fleet events add --file -\n'
            "  fleet jobs stats\n"
            "Ctrl-C stops it."
        )


def _counter(console: Console, messages: int) -> Callable[[int], None]:
    """Print a line for each tenth, where no terminal shows a bar."""
    shown = 0

    def show(done: int) -> None:
        nonlocal shown
        tenth = done * 10 // messages
        if tenth > shown:
            shown = tenth
            console.print(f"{done:,} of {messages:,} delivered")

    return show


def _last_lines(file: Path) -> list[str]:
    return file.read_text(errors="replace").splitlines()[-10:] if file.exists() else []


def _now_ms() -> float:
    return time.time() * 1000


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
