"""The command line: choose, measure, print, write."""

# ruff: noqa: T201 (printing is what it is for)

from __future__ import annotations

import argparse
import fcntl
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmark.errors import BenchError
from benchmark.ground import SHORT_DIVISOR, Ground
from benchmark.machine.needs import need
from benchmark.machine.profiler import Profiled, Profiler
from benchmark.machine.sink import running_sink
from benchmark.measure import Row, measure
from benchmark.peers import rows as peers
from benchmark.pipeline import latency as pipeline_latency
from benchmark.pipeline import rows as pipeline
from benchmark.plot import draw
from benchmark.report import report
from benchmark.rows import claim, concurrency, drain, footprint, latency, limits, publish, sources, topics
from benchmark.scale import look as scale_look
from benchmark.scale import rows as scale
from benchmark.scenario import Scenario
from benchmark.sqs import rates, size, waits
from benchmark.table import print_table

ROWS = (
    limits,
    peers,
    claim,
    concurrency,
    drain,
    footprint,
    latency,
    pipeline,
    pipeline_latency,
    publish,
    scale,
    scale_look,
    sources,
    topics,
    rates,
    waits,
    size,
)
"""In the order of the table."""
REPOSITORY = Path(__file__).resolve().parents[2]
OUT = REPOSITORY / "out" / "bench"
ROUNDS = 2

EXAMPLES = """\
examples:
  scripts/bench                          all scenarios, the best of two rounds (several minutes)
  scripts/bench --short                  the same with a quarter of the messages, one round
  scripts/bench --only groupmq,bullmq    these alone; kinds work too: --only limit,fleet,scale
  scripts/bench --repeat 5 --json b.json five rounds; the figures also in b.json
  scripts/bench --only pool --profile    then once more with py-spy beside the processes
  scripts/bench --list                   the names

Figures go to out/bench/bench.json and out/bench/bench.png, profiles to out/bench/profile-*.txt; the peers'
environments stay in out/bench/peers.
Exit 0: measured, every message delivered once and every source empty. 1: not so. 2: wrong use.
A missed budget is shown in the table and is not an error.
"""


def scenarios() -> list[Scenario]:
    return [scenario for module in ROWS for scenario in module.SCENARIOS]


def choose(known: Sequence[Scenario], only: str) -> list[Scenario]:
    if not only:
        return list(known)
    wanted = [name.strip() for name in only.split(",") if name.strip()]
    possible = {scenario.name for scenario in known} | {scenario.kind for scenario in known}
    if unknown := [name for name in wanted if name not in possible]:
        raise BenchError(f"no such scenario: {', '.join(unknown)} (see --list)")
    return [scenario for scenario in known if scenario.name in wanted or scenario.kind in wanted]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _end)
    began = time.monotonic()
    try:
        known = scenarios()
        chosen = choose(known, options.only)
        if not chosen:
            raise BenchError("nothing to measure")
    except BenchError as error:
        parser.error(str(error))
    if options.list:
        for scenario in chosen:
            print(f"{scenario.name:<16} {scenario.kind:<6} {scenario.title}")
        return 0
    if options.json is not None and not options.json.resolve().parent.is_dir():
        # Now, not after minutes of measuring.
        parser.error(f"no such folder for --json: {options.json.parent}")
    divisor = options.divide or (SHORT_DIVISOR if options.short else 1)
    rounds = options.repeat or (1 if divisor > 1 else ROUNDS)
    out = options.out.absolute()
    try:
        rows = _run(chosen, out=out, divisor=divisor, rounds=rounds, profile=options.profile, say=_speaker(began))
        _publish(rows, out, options.json, short=divisor > 1, rounds=rounds)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted; its servers are stopped", file=sys.stderr)
        return 130
    return 1 if any(row.problems for row in rows) else 0


def _run(
    chosen: Sequence[Scenario], *, out: Path, divisor: int, rounds: int, profile: bool, say: Callable[[str], None]
) -> list[Row]:
    scratch = out / "run"
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out / "lock"):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        need("nginx", "nginx-light", repository=REPOSITORY, log=scratch / "need.log")
        with running_sink(scratch) as sink:
            ground = Ground(repository=REPOSITORY, out=out, scratch=scratch, sink=sink, divisor=divisor, say=say)
            rows = measure(chosen, ground, rounds=rounds)
            if profile:
                _profile(chosen, ground)
            return rows


def _profile(chosen: Sequence[Scenario], ground: Ground) -> None:
    """Afterwards, and once: a process that is profiled is slower, so these figures are in no table."""
    Profiler.install(ground)
    for scenario in chosen:
        if isinstance(scenario, Profiled):
            ground.say(f"{scenario.name}, profiled")
            measured = scenario.profile(ground, Profiler(ground, scenario.name))
            ground.say(f"{scenario.name}, profiled: {measured.value:,.3g} {measured.unit}")


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Two runs at once would measure each other. The kernel lets go of the lock however we end."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BenchError("another scripts/bench is running here") from error
        yield


def _publish(rows: Sequence[Row], out: Path, also: Path | None, *, short: bool, rounds: int) -> None:
    print_table(rows)
    text = json.dumps(report(rows, short=short, rounds=rounds), indent=2, ensure_ascii=False) + "\n"
    for path in filter(None, (out / "bench.json", also)):
        try:
            path.write_text(text)
        except OSError as error:
            raise BenchError(f"cannot write {path}: {error.strerror}") from error
    drawn = draw(rows, out / "bench.png")
    shown = out.relative_to(REPOSITORY) if out.is_relative_to(REPOSITORY) else out
    print(f"figures: {shown}/bench.json{f', {shown}/bench.png' if drawn else ''}")


def _speaker(began: float) -> Callable[[str], None]:
    def say(text: str) -> None:
        print(f"bench {time.monotonic() - began:6.1f} s  {text}", file=sys.stderr, flush=True)

    return say


def _end(_number: int, _frame: object) -> None:
    # So that SIGTERM also runs the clean-up that stops every server.
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure Fleet, its peers and this machine's limits against one sink, in one run.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--short", action="store_true", help="a quarter of the messages and one round")
    parser.add_argument("--only", metavar="NAME,...", default="", help="only these scenarios or kinds")
    parser.add_argument("--repeat", metavar="N", type=_positive, help=f"rounds; the best counts (default {ROUNDS})")
    parser.add_argument(
        "--divide", metavar="N", type=_positive, help="an Nth of the messages (--short is 4), one round"
    )
    parser.add_argument("--profile", action="store_true", help="then run Fleet's rates once more under a profiler")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures here, too")
    parser.add_argument("--out", metavar="DIR", type=Path, default=OUT, help="keep everything here (out/bench)")
    parser.add_argument("--list", action="store_true", help="list the scenarios and end")
    return parser


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return number
