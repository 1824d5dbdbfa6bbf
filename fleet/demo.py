"""The demo: a whole fleet in a temporary folder, messages through it, and a table of what arrived."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import math
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fleet.embedded_redis import EmbeddedRedis
from fleet.errors import FleetError
from fleet.journal import End, Journal, Record
from fleet.nouns import number
from fleet.send import Draft, Sent, publish, seed_drafts
from fleet.settings import ConfigSettings, RedisSettings, Settings
from fleet.sources.open import open_publisher, open_source
from fleet.supervise import Program, Supervisor, fleet_command, on_signals
from fleet.up import environment_for, programs, queue_uri, router_config, syncer_gave_up, until_ready

QUEUE, POOL = "demo", "DEMO"
WORKERS, COORDINATORS, CONCURRENCY = 2, 2, 20
_GROUPS_SHOWN = 8
_BATCH, _BATCH_EVERY_S = 100, 0.05
"""A steady stream: in one burst every latency would be that of the backlog."""
_READY_WITHIN_S, _STUCK_AFTER_S, _LOOK_S = 30.0, 30.0, 0.1


@dataclasses.dataclass(slots=True)
class GroupTally:
    """What became of one group."""

    sent: int = 0
    delivered: int = 0
    out_of_order: int = 0
    duplicates: int = 0
    latencies_ms: list[float] = dataclasses.field(default_factory=list)
    last_seq: int = -1

    def add(self, other: GroupTally) -> None:
        self.sent += other.sent
        self.delivered += other.delivered
        self.out_of_order += other.out_of_order
        self.duplicates += other.duplicates
        self.latencies_ms += other.latencies_ms

    @property
    def ok(self) -> bool:
        return self.delivered == self.sent and not self.out_of_order


class Tally:
    """Joins what was sent with what the endpoint journals."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupTally] = {}
        self.delivered = 0
        self._sent: dict[str, tuple[str, int, float]] = {}
        self._done: set[str] = set()

    def sent(self, drafts: list[Draft], first_seq: int, now_ms: float) -> None:
        for seq, draft in enumerate(drafts, start=first_seq):
            group = draft.group or ""
            self._sent[draft.id] = group, seq, now_ms
            self.groups.setdefault(group, GroupTally()).sent += 1

    def accepted(self, end: End) -> None:
        if not 200 <= end.status <= 299 or end.id not in self._sent:
            return
        name, seq, sent_ms = self._sent[end.id]
        group = self.groups[name]
        if end.id in self._done:
            group.duplicates += 1
            return
        self._done.add(end.id)
        self.delivered += 1
        group.delivered += 1
        group.latencies_ms.append(max(0.0, end.t - sent_ms))
        group.out_of_order += seq < group.last_seq
        group.last_seq = max(group.last_seq, seq)

    @property
    def total(self) -> GroupTally:
        total = GroupTally()
        for group in self.groups.values():
            total.add(group)
        return total


class Tail:
    """The records that a journal has grown by since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._decode = msgspec.json.Decoder(Record).decode

    def read(self) -> Iterator[Record]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # still being written
                self._offset += len(line)
                yield self._decode(line)


def demo(settings: Settings, *, environment: Mapping[str, str], messages: int, groups: int, keep: bool) -> int:
    """Returns the exit code: 0 only if all arrived in order."""
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="fleet-demo-"))
    try:
        file = folder / "router.json"
        pools = [{"code": POOL, "concurrency": CONCURRENCY}]
        file.write_text(router_config(queue=QUEUE, file=folder / "queues.db", pools=pools), encoding="utf-8")
        with EmbeddedRedis(directory=folder) as redis:
            own = dataclasses.replace(
                settings,
                data_dir=folder,
                file=None,
                redis=RedisSettings(url=redis.url),
                config=ConfigSettings(source=str(file)),
            )
            return asyncio.run(_Demo(own, folder, console).run(environment, messages, groups, keep))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Demo:
    def __init__(self, settings: Settings, folder: Path, console: Console) -> None:
        self._settings = settings
        self._console = console
        self._uri = queue_uri(queue=QUEUE, file=folder / "queues.db")
        self._journal = folder / "deliveries.ndjson"
        self._port = _free_port()
        self._sent_journal = folder / "sent.ndjson"
        self.tally = Tally()

    async def run(self, base: Mapping[str, str], messages: int, groups: int, keep: bool) -> int:
        # Its processes tell what goes wrong; that they began and ended the demo tells itself.
        environment = {**environment_for(self._settings, base), "FLEET_LOG_LEVEL": "WARNING"}
        logging.getLogger("fleet").setLevel("WARNING")
        url = self._settings.redis.url
        supervisor = Supervisor(
            stages=[
                [self._endpoint(environment)],
                programs("syncer", 1, environment),
                programs("coordinator", COORDINATORS, environment),
                programs("worker", WORKERS, environment),
            ],
            orphan_signal=signal.SIGKILL,
            is_final=lambda program, code: syncer_gave_up(url, program, code),
        )
        on_signals(supervisor.stop)
        supervising = asyncio.ensure_future(supervisor.run())
        work = asyncio.ensure_future(self._work(messages, groups))
        try:
            await asyncio.wait({supervising, work}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                # Ctrl-C, or a child whose end is final.
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

    async def _work(self, messages: int, groups: int) -> int:
        with self._console.status("Starting Redis, a syncer, two coordinators, two workers and an endpoint"):
            try:
                async with asyncio.timeout(_READY_WITHIN_S):
                    await until_ready(self._settings.redis.url, coordinators=COORDINATORS, workers=WORKERS)
            except TimeoutError as error:
                raise FleetError(f"the demo's processes were not ready within {_READY_WITHIN_S:g} s") from error
        target = f"http://127.0.0.1:{self._port}/fast"
        with self._progress(messages) as show:
            sending = asyncio.ensure_future(self._send(messages, groups, target))
            try:
                arrived = await self._follow(messages, sending, show)
            finally:
                sending.cancel()
        drained = arrived and await self._source_is_empty()
        self._show_table()
        total = self.tally.total
        if total.ok and total.sent == messages and drained:
            self._console.print(f"[green]All {number(messages, 'message')} arrived, each group in order.[/green]")
            return 0
        if not arrived:
            self._console.print(f"[red]{number(messages - total.delivered, 'message')} did not arrive.[/red]")
        elif not drained:
            self._console.print("[red]The queue still holds messages that were delivered.[/red]")
        else:
            self._console.print(f"[red]{number(total.out_of_order, 'message')} arrived out of order.[/red]")
        return 1

    async def _send(self, messages: int, groups: int, target: str) -> None:
        drafts = seed_drafts(count=messages, mode="1of8", groups=groups, target=target, pool=POOL)
        publisher, sent, seq = open_publisher(self._uri), Sent(), 0
        journal = Journal(self._sent_journal, buffer_bytes=1 << 20)
        await publisher.open()
        try:
            loop = asyncio.get_running_loop()
            due = loop.time()
            while batch := list(itertools.islice(drafts, _BATCH)):
                self.tally.sent(batch, seq, _now_ms())
                await publish(publisher, batch, sent, journal=journal, seq=itertools.count(seq))
                if sent.refused:
                    raise FleetError(f"the demo's own queue refused messages: {sent.refusals[0]}")
                seq += len(batch)
                due += _BATCH_EVERY_S
                await asyncio.sleep(max(0.0, due - loop.time()))
        finally:
            await publisher.close()
            journal.close()

    async def _follow(self, messages: int, sending: asyncio.Future[None], show: Callable[[int], None]) -> bool:
        """Until everything arrived, or nothing more does. Returns whether everything did."""
        tail, loop = Tail(self._journal), asyncio.get_running_loop()
        moved_at = loop.time()
        while self.tally.delivered < messages:
            if sending.done():
                sending.result()
            before = self.tally.delivered
            for record in tail.read():
                if isinstance(record, End):
                    self.tally.accepted(record)
            show(self.tally.delivered)
            if self.tally.delivered > before:
                moved_at = loop.time()
            elif loop.time() - moved_at > _STUCK_AFTER_S:
                return False
            # The endpoint is another process, and its journal a file: nothing tells us when it grows.
            await asyncio.sleep(_LOOK_S)
        await sending
        return True

    async def _source_is_empty(self) -> bool:
        """Whether the last acknowledgements reach the queue, too."""
        source = open_source(QUEUE, self._uri, 1000)
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

    @contextlib.contextmanager
    def _progress(self, messages: int) -> Iterator[Callable[[int], None]]:
        columns = (TextColumn("Delivering"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        if not self._console.is_terminal:
            yield _counter(self._console, messages)
            return
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task("", total=messages)
            yield lambda done: progress.update(task, completed=done)

    def _show_table(self) -> None:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("group", no_wrap=True)
        for title in ("sent", "delivered", "out of order", "duplicates", "p50 ms", "p99 ms"):
            table.add_column(title, justify="right")
        names = sorted(self.tally.groups, key=lambda name: (len(name), name))
        for name in names[:_GROUPS_SHOWN]:
            table.add_row(*_row(name, self.tally.groups[name]))
        if len(names) > _GROUPS_SHOWN:
            table.add_row(f"… {len(names) - _GROUPS_SHOWN} more", *[""] * 6)
        table.add_section()
        table.add_row(*_row(f"all {number(len(names), 'group')}", self.tally.total), style="bold")
        self._console.print(table)

    def _say_where_to_look(self) -> None:
        say = self._console.out
        say("It runs on. In another terminal:")
        say(f"  export FLEET_REDIS_URL='{self._settings.redis.url}'")
        say("  fleet status")
        say(f"  fleet seed --count 1000 --queue {QUEUE} --pool {POOL} --endpoint http://127.0.0.1:{self._port}/slow")
        say("  fleet pools")
        say("Ctrl-C stops it.")


def _counter(console: Console, messages: int) -> Callable[[int], None]:
    """A line for each tenth, where no terminal shows a bar."""
    shown = 0

    def show(done: int) -> None:
        nonlocal shown
        tenth = done * 10 // messages
        if tenth > shown:
            shown = tenth
            console.print(f"{done:,} of {messages:,} delivered")

    return show


def _row(name: str, group: GroupTally) -> list[str]:
    counts = (group.sent, group.delivered, group.out_of_order, group.duplicates)
    return [name, *(f"{n:,}" for n in counts), *(f"{percentile(group.latencies_ms, p):,.1f}" for p in (0.5, 0.99))]


def percentile(values: list[float], share: float) -> float:
    """The smallest value that this share of the values does not exceed; 0 of none."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _now_ms() -> float:
    return time.time() * 1000


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
