"""From a failing seed to the fewest faults and messages that fail in the same way.

First what came after the failure goes, then halves, quarters and so on of what is left, as long as it still fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from tests.simulation.run import Case, Result, run_all

Part = tuple[int, ...]
WITHIN_S = 90.0


def shrink(failed: Result, *, jobs: int, within_s: float = WITHIN_S, tell: Callable[[str], None]) -> Result:
    """Returns the smallest case that was found in that time."""
    give_up_s = time.monotonic() + within_s
    whole = failed.case.scenario()
    best = failed
    start = replace(
        failed.case,
        faults=tuple(f.number for f in whole.faults if f.at_s <= failed.at_s),
        messages=tuple(m.number for m in whole.messages if m.at_s <= failed.at_s),
    )
    for result in run_all([start], jobs=1):
        best = result if _same(result, failed) else replace(failed, case=_explicit(failed.case))
    for name in ("faults", "messages", "faults"):
        best = _fewer(best, failed, name, jobs, give_up_s)
        tell(f"  {len(best.case.faults or ())} faults, {len(best.case.messages or ())} messages still fail")
    return best


def _explicit(case: Case) -> Case:
    whole = case.scenario()
    return replace(case, faults=tuple(f.number for f in whole.faults), messages=tuple(m.number for m in whole.messages))


def _same(result: Result, failed: Result) -> bool:
    return result.kind == failed.kind and signature(result) == signature(failed)


def signature(result: Result) -> str:
    """What two failures of one bug have in common, as far as a text can tell: for a crash, its error and place."""
    if result.kind != "crash":
        return result.kind
    words, _, frames = result.text.split(" ended: ", 1)[-1].partition(", by ")
    frames = frames.rpartition(" (")[0]
    # Where it came from: the last places often only translate an error.
    return f"crash {words.split(':', 1)[0]} {frames}"


def _fewer(best: Result, failed: Result, name: str, jobs: int, give_up_s: float) -> Result:
    parts = 2
    while time.monotonic() < give_up_s:
        kept: Part = getattr(best.case, name)
        if not kept:
            return best
        size = max(1, len(kept) // parts)
        trials = (_with(best.case, name, without) for without in _without_each(kept, size))
        smaller = _first_that_fails(trials, failed, jobs, give_up_s)
        if smaller is not None:
            best = smaller
            parts = max(2, parts - 1)
        elif size == 1:
            return best
        else:
            parts *= 2
    return best


def _with(case: Case, name: str, part: Part) -> Case:
    return replace(case, faults=part) if name == "faults" else replace(case, messages=part)


def _without_each(kept: Part, size: int) -> Iterator[Part]:
    for first in range(0, len(kept), size):
        yield kept[:first] + kept[first + size :]


def _first_that_fails(trials: Iterator[Case], failed: Result, jobs: int, give_up_s: float) -> Result | None:
    while chunk := list(islice(trials, jobs)):
        for result in run_all(chunk, jobs=jobs):
            if _same(result, failed):
                return result
        if time.monotonic() > give_up_s:
            return None
    return None
