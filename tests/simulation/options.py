"""What `scripts/simulate` can be asked for. What it cannot do, it refuses in one line with status 2.

Nothing of the fleet is imported here: `--help` works before anything is installed, and `--without` has to come first.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from typing import NoReturn

_NAME = "scripts/simulate"
_ABOUT = "Runs a whole fleet in one process, with virtual time and faults drawn from a seed (docs/testing.md)."
_EXAMPLES = """\
examples:
  scripts/simulate --minutes 10                      as many seeds as fit
  scripts/simulate --seed 17 --trace                 one of them, with all that happens
  scripts/simulate --seed 17 --faults 3,8 --shrink   with two of its faults, made as small as fails the same way
"""
_SPAN = re.compile(r"(\d{1,15})(?:-(\d{1,15}))?", re.ASCII)
_SPAN_MOST = 1_000_000


def refuse(text: str) -> NoReturn:
    print(f"{_NAME}: {text}", file=sys.stderr)
    raise SystemExit(2)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        refuse(f"{message} (--help says more)")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = parser_of_all()
    options = parser.parse_args(arguments)
    for name in ("trace", "faults", "messages"):
        if options.seed is None and getattr(options, name) not in (None, False):
            parser.error(f"--{name} is of one seed: name it with --seed")
    return options


def parser_of_all() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_NAME,
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    which = parser.add_argument_group("which seeds (100, unless told)")
    which.add_argument("--seeds", type=_above_0(int), metavar="N", help="so many of them")
    which.add_argument("--from", dest="first", type=int, default=1, metavar="SEED", help="the first of them (1)")
    which.add_argument("--minutes", type=_above_0(float), metavar="M", help="as many as fit into this time")
    which.add_argument("--these", type=numbers, metavar="SEEDS", help="these alone, as in 5,10-12")
    which.add_argument("--until-found", action="store_true", help="stop at the first that fails")
    one = parser.add_argument_group("one seed")
    one.add_argument("--seed", type=int, metavar="SEED", help="this one alone")
    one.add_argument("--trace", action="store_true", help="print everything that happens")
    one.add_argument(
        "--faults", type=_numbers_or_none, metavar="LIST", help="only these of its faults, as in 1,4-6; or none"
    )
    one.add_argument("--messages", type=_numbers_or_none, metavar="LIST", help="only these of its messages")
    how = parser.add_argument_group("how")
    how.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="FAMILY",
        help="faults of this family alone, as in redis; may be repeated",
    )
    how.add_argument(
        "--without",
        metavar="MEND",
        help="with one mend taken out (tests/simulation/breakages.py), until a seed finds that",
    )
    how.add_argument("--jobs", type=_above_0(int), default=2, metavar="N", help="so many runs at a time (2)")
    how.add_argument(
        "--shrink",
        action="store_true",
        help="find the fewest faults and messages that fail in the same way, of the first failure of each sort",
    )
    how.add_argument(
        "--within", type=_above_0(float), default=90.0, metavar="S", help="seconds for each shrinking (90)"
    )
    how.add_argument("--json", action="store_true", help="print one object a result")
    return parser


def check_names(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse the first unknown name. `what`: the kind of name, such as `family`."""
    there = sorted(known)
    for name in given:
        if name not in there:
            refuse(f"there is no {what} {name} (there are: {', '.join(there)})")


def check_numbers(seed: int, what: str, given: Iterable[int] | None, known: Iterable[int]) -> None:
    """Refuse numbers that a seed does not have. `what`: what they number, such as `fault`."""
    there = set(known)
    if missing := sorted(set(given or ()) - there):
        refuse(f"seed {seed} has no {what} {spans(missing)} (it has: {spans(there) or 'none'})")


def spans(numbers: Iterable[int]) -> str:
    """1,2,3,7 as 1-3,7."""
    out: list[list[int]] = []
    for number in sorted(numbers):
        if out and out[-1][1] == number - 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in out)


def numbers(text: str) -> tuple[int, ...]:
    """1-3,7 as 1,2,3,7."""
    found: list[int] = []
    for part in text.split(","):
        span = _SPAN.fullmatch(part)
        if span is None:
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers, as in 1,4-6")
        first, last = int(span[1]), int(span[2] or span[1])
        if not first <= last < first + _SPAN_MOST:
            raise argparse.ArgumentTypeError(f"{part} is not from a number to a higher one, of {_SPAN_MOST:,} at most")
        found += range(first, last + 1)
    return tuple(found)


def _numbers_or_none(text: str) -> tuple[int, ...]:
    return () if text == "none" else numbers(text)


def _above_0(kind: type[int] | type[float]) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = kind(0)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
        return value

    return read
