"""Commands that put messages into queues."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import click

from fleet.cli.base import Command, ask, example, settings_of, settings_without_redis
from fleet.cli.table import tell_some
from fleet.config.settings import Settings
from fleet.errors import NotUp, StateError
from fleet.operate.journal import Journal
from fleet.operate.send import (
    ONE_OF_EIGHT,
    Draft,
    GroupMode,
    Overrides,
    SendResult,
    config_in_force,
    drafts_from_lines,
    drafts_of_one,
    is_served,
    made_up_body,
    sample_target,
    seed_drafts,
    uri_of_queue,
)
from fleet.operate.send import (
    send as send_drafts,
)
from fleet.sources.open import adapter_of

T = TypeVar("T")

_JOURNAL_BUFFER_BYTES = 1024 * 1024
_COMES_UP_WITHIN_S = 15
_LOOK_S = 0.1
journal_option = click.option(
    "--journal", type=click.Path(path_type=Path, dir_okay=False), help="Record every message that the queue accepted."
)

wait_option = click.option(
    "--wait",
    "wait_s",
    metavar="SECONDS",
    type=click.FloatRange(0),
    default=_COMES_UP_WITHIN_S,
    show_default=True,
    help="How long to wait for a fleet that is just coming up. 0: fail at once.",
)


@click.command(
    cls=Command,
    epilog=example(
        "fleet send default --target http://127.0.0.1:8421/fast --group order-1 --count 100",
        'fleet send default --body \'{"id":"1","poolCode":"DEFAULT-POOL","mediationTarget":"http://127.0.0.1:8421/fast"}\'',
        "fleet send default --file messages.ndjson --journal sent.ndjson",
    ),
)
@click.argument("queue")
@click.option("--body", metavar="JSON", help="One message.")
@click.option("--file", metavar="NDJSON", type=click.File("rb", lazy=False), help="One message a line; - for stdin.")
@click.option("--group", help="Put every message into this group.")
@click.option("--pool", help="Send every message to this pool.")
@click.option("--target", metavar="URL", help="Deliver every message there.")
@click.option("--count", type=click.IntRange(1), help="This many copies of the one message, each with its own id.")
@click.option("--dedup-id", metavar="ID", help="By this a repeated send of the one message is known; default: its id.")
@click.option("--unchecked", is_flag=True, help="Send bodies as they are, even those that can never be delivered.")
@wait_option
@journal_option
@click.pass_context
def send(
    context: click.Context,
    queue: str,
    body: str | None,
    file: BinaryIO | None,
    group: str | None,
    pool: str | None,
    target: str | None,
    count: int | None,
    dedup_id: str | None,
    unchecked: bool,
    wait_s: float,
    journal: Path | None,
) -> int:
    """Send messages to a queue.

    QUEUE is the name of a configured queue, or a queue URI. Prints how many messages the queue accepted. One that is
    refused is reported with its line; the others go on, and the exit code is 1. If the queue goes away, sending ends,
    also with 1: messages whose answer got lost are named, and the first line that was not sent. A message without an
    id gets one. A message that is made up here (--target alone) is for DEFAULT-POOL, unless --pool names another. A
    queue that remembers dedup ids drops what it has seen under the same one within five minutes.
    """
    if body is not None and file is not None:
        raise click.UsageError("--body and --file exclude each other.", context)
    if file is not None and count is not None:
        raise click.UsageError("--count goes with one message, not with --file.", context)
    if dedup_id is not None and (file is not None or (count or 1) > 1):
        raise click.UsageError("--dedup-id goes with one message: several with one dedup id would be one.", context)
    if body is None and file is None and target is None:
        raise click.UsageError("Nothing to send: give --body, --file or --target.", context)
    uri = _uri(context, queue, wait_s)
    overrides = Overrides(group=group, pool=pool, target=target, dedup_id=dedup_id)
    if file is not None:
        drafts = drafts_from_lines(file, overrides, unchecked=unchecked)
    else:
        drafts = drafts_of_one(body.encode() if body else made_up_body(), count or 1, overrides, unchecked=unchecked)
    return _send(uri, drafts, journal)


@click.command(
    cls=Command,
    epilog=example(
        "fleet endpoint &",
        "fleet seed --count 1000 --group-mode 1of8 --endpoint fast",
    ),
)
@click.option("--count", type=click.IntRange(1), required=True)
@click.option(
    "--group-mode",
    type=click.Choice(["unique", "1of8", "single"]),
    default="1of8",
    show_default=True,
    help="A group for each message, one of some at random, or one for all.",
)
@click.option("--groups", type=click.IntRange(1), default=ONE_OF_EIGHT, show_default=True, help="How many for 1of8.")
@click.option("--queue", help="Default: the queue named default, or the only one.")
@click.option("--pool", default="", help="Default: DEFAULT-POOL.")
@click.option(
    "--endpoint",
    metavar="fast|slow|faulty|fail|URL",
    default="fast",
    show_default=True,
    help="A path of `fleet endpoint` on its default port (at once; after half a second; every third fails; all fail),"
    " or any URL.",
)
@wait_option
@journal_option
@click.pass_context
def seed(
    context: click.Context,
    count: int,
    group_mode: GroupMode,
    groups: int,
    queue: str | None,
    pool: str,
    endpoint: str,
    wait_s: float,
    journal: Path | None,
) -> int:
    """Send made-up messages to a queue."""
    target = sample_target(endpoint)
    uri = _uri(context, queue, wait_s)
    return _send(uri, seed_drafts(count=count, mode=group_mode, groups=groups, target=target, pool=pool), journal)


commands = (send, seed)


def _uri(context: click.Context, queue: str | None, wait_s: float) -> str:
    coming = _ComingUp(wait_s)
    if queue is None or ":" not in queue:

        def where() -> tuple[Settings, str, str]:
            settings = settings_of(context)
            return (settings, *uri_of_queue(ask(config_in_force(settings)), queue))

        settings, name, uri = coming.wait_for(where)
        coming.wait_until(lambda: ask(is_served(settings, name)))
        return uri
    # What an adapter needs besides its URI comes from the settings too.
    adapter = adapter_of(queue)
    if adapter.kept_in == "redis":
        adapter.parse(queue)  # waiting for a fleet does not make a wrong URI right
        coming.wait_for(lambda: settings_of(context))
    else:
        settings_without_redis(context)
    return queue


class _ComingUp:
    """Waits for a fleet that was started a moment ago, and says so."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._deadline_s = time.monotonic() + wait_s
        self._waited = False

    def wait_for(self, question: Callable[[], T]) -> T:
        """The answer, as soon as there can be one; NotUp if there was none in time."""
        while True:
            try:
                return question()
            except NotUp:
                # The error says why only if no fleet comes up.
                if not self._has_time():
                    raise
                if not self._waited:
                    click.echo(f"No fleet is up yet; waiting for one, up to {self._wait_s:g} s.", err=True)
                self._waited = True
            self._pause()

    def wait_until(self, fact: Callable[[], bool]) -> None:
        """Only if the fleet was not up a moment ago: what is looked at next might otherwise be only half there."""
        while self._waited and self._has_time():
            with contextlib.suppress(StateError):
                if fact():
                    return
            self._pause()

    def _has_time(self) -> bool:
        return time.monotonic() < self._deadline_s

    def _pause(self) -> None:
        # A fleet that is not there yet sends nothing to wait for.
        time.sleep(_LOOK_S)


def _send(uri: str, drafts: Iterable[Draft], path: Path | None) -> int:
    with _journal(path) as journal, _progress() as show:
        sent = ask(send_drafts(uri, drafts, journal=journal, on_progress=show))
    tell_some("refused", sent.refusals, sent.refused)
    tell_some("unknown", sent.doubts, sent.unsure)
    if sent.stopped:
        click.echo(f"not sent: {sent.stopped.replace('not sent: ', '')}", err=True)
    counts = [f"{sent.accepted} accepted"]
    counts += [f"{sent.refused} refused"] if sent.refused else []
    counts += [f"{sent.unsure} unknown"] if sent.unsure else []
    click.echo(", ".join(counts))
    return 0 if sent.is_whole else 1


@contextlib.contextmanager
def _journal(path: Path | None) -> Iterator[Journal | None]:
    if path is None:
        yield None
        return
    journal = Journal(path, buffer_bytes=_JOURNAL_BUFFER_BYTES)
    try:
        yield journal
    finally:
        journal.close()


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[SendResult], None] | None]:
    """A counter in place, if somebody watches."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(sent: SendResult) -> None:
        sys.stderr.write(f"\r{sent.accepted:,} accepted")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\033[K")
