"""`scripts/simulate`: run seeds, say which fail and how to see that again, and shrink what fails."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

from tests.simulation.options import check_names, check_numbers, parse

if TYPE_CHECKING:
    from argparse import Namespace


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of a set of names is random too, and no seed can decide it.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    # When this process is ended, it ends its runs too and takes their files away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = parse()
    options.kinds = ()
    if options.without is not None:
        from tests.simulation.breakages import BREAKAGES, take_out

        check_names("mend", [options.without], BREAKAGES)
        breakage = take_out(options.without)
        options.only = options.only or list(breakage.only)
        options.seeds = options.seeds or breakage.within
        options.until_found, options.kinds = True, breakage.kinds
    from tests.simulation.scenario import Family

    check_names("family", options.only, get_args(Family))
    if options.seed is not None:
        return _one(options)
    return _many(options)


def _one(options: Namespace) -> int:
    import gc

    from tests.simulation.run import Case, run_all, run_here
    from tests.simulation.shrink import shrink

    gc.disable()
    case = Case(options.seed, tuple(options.only), options.faults, options.messages)
    whole = Case(options.seed, tuple(options.only)).scenario()
    check_numbers(options.seed, "fault", options.faults, (fault.number for fault in whole.faults))
    check_numbers(options.seed, "message", options.messages, (message.number for message in whole.messages))
    plan = case.scenario()
    if options.trace:
        for part in (*plan.queues, *plan.pools, *plan.endpoints, *plan.groups):
            print(part)
        print(f"ttl {plan.ttl_ms} ms, families {', '.join(sorted(plan.families))}")
        for message in plan.messages:
            print(message)
    # In a process of its own, if there is to be another: a run leaves things behind in modules.
    (result,) = [run_here(case, trace=print)] if options.trace else run_all([case], jobs=1)
    if options.json:
        print(json.dumps(_told(result)))
    else:
        print(result.line())
        print(f"{result.virtual_s:.0f} s in {result.cpu_s:.2f} s of CPU, {result.events} events, trace {result.digest}")
    if options.shrink and not result.ok:
        small = shrink(result, jobs=options.jobs, within_s=options.within, tell=print)
        print(f"{small.line()}\n  {small.case.command()} --trace")
    sys.stdout.flush()
    # What is left of the simulated processes must not be collected: it would run its `finally` blocks.
    os._exit(0 if result.ok else 1)


def _many(options: Namespace) -> int:
    from tests.simulation.run import Case, Result, run_all
    from tests.simulation.shrink import shrink, signature

    give_up_s = time.monotonic() + options.minutes * 60 if options.minutes else None

    found = False

    def cases() -> Iterator[Case]:
        for seed in options.these or itertools.count(options.first):
            over = found or (give_up_s is not None and time.monotonic() > give_up_s)
            if over or (options.seeds and seed >= options.first + options.seeds):
                return
            yield Case(seed, tuple(options.only))

    if not options.seeds and not options.minutes and not options.these:
        options.seeds = 100
    began_s, ran, cpu_s = time.monotonic(), 0, 0.0
    failed: dict[str, Result] = {}
    times: Counter[str] = Counter()
    for result in run_all(cases(), jobs=options.jobs):
        ran, cpu_s = ran + 1, cpu_s + result.cpu_s
        if options.json:
            print(json.dumps(_told(result)), flush=True)
        if not result.ok:
            sort = signature(result)
            times[sort] += 1
            if sort not in failed:
                failed[sort] = result
            if not options.json:
                print(f"{result.line()}\n  {result.case.command()} --trace", flush=True)
            if options.until_found and (not options.kinds or result.kind in options.kinds):
                found = True  # lower seeds that run still finish: the smallest one counts
        elif sys.stderr.isatty() and ran % 10 == 0:
            print(f"\r{ran} seeds, {sum(times.values())} failed", end="", file=sys.stderr, flush=True)
    took_s = time.monotonic() - began_s
    if options.shrink:
        for sort, result in failed.items():
            print(f"{sort}: making seed {result.case.seed} small", flush=True)
            small = shrink(result, jobs=options.jobs, within_s=options.within, tell=print)
            print(f"{small.line()}\n  {small.case.command()} --trace", flush=True)
    if not options.json:
        for sort, count in times.most_common():
            print(f"{count:5d} × {sort}, first seed {failed[sort].case.seed}")
        print(
            f"{ran} seeds, {sum(times.values())} failed, {took_s:.1f} s, {ran * 60 / max(took_s, 0.001):.0f} a minute,"
            f" {cpu_s / max(ran, 1):.2f} s of CPU each"
        )
    return 1 if times else 0


def _told(result: object) -> dict[str, object]:
    told = dict(vars(result))
    case = told.pop("case")
    return {"seed": case.seed, "command": case.command(), **told}


if __name__ == "__main__":
    raise SystemExit(main())
