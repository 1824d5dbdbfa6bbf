"""Source × fact: what each kind of queue was seen to do, and what it cannot."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from tests.conformance.kits import KITS, why_not


class Table:
    """Filled while the suite runs: `yes` was seen, `NO` was not, a number leads to why the queue cannot."""

    def __init__(self) -> None:
        self.facts: dict[str, dict[str, str]] = {}
        self._seen: dict[tuple[str, str], bool] = {}

    def expect(self, fact: str, reasons: Mapping[str, str]) -> None:
        self.facts[fact] = dict(reasons)

    def note(self, fact: str, kind: str, *, passed: bool) -> None:
        """A fact that is tried with several values holds when it holds with each."""
        self._seen[fact, kind] = self._seen.get((fact, kind), True) and passed

    def text(self) -> str:
        notes: list[str] = []

        def cell(fact: str, kind: str) -> str:
            reason = self.facts[fact][kind]
            if reason:
                if reason not in notes:
                    notes.append(reason)
                return f"no ({notes.index(reason) + 1})"
            passed = self._seen.get((fact, kind))
            return "not run" if passed is None else "yes" if passed else "NO"

        titles = [kit.title for kit in KITS.values()]
        rows = [f"| fact | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}"]
        rows += [
            f"| {fact.replace('_', ' ')} | {' | '.join(cell(fact, kind) for kind in KITS)} |" for fact in self.facts
        ]
        if notes:
            rows += ["", *(f"{number}. {note}" for number, note in enumerate(notes, 1))]
        return "\n".join(rows)


def promised() -> str:
    """The table as it is when every test passes: what docs/sources.md shows. `python -m tests.conformance.table`"""
    from tests.conformance import test_sources

    table = Table()
    for name, test in inspect.getmembers(test_sources, inspect.iscoroutinefunction):
        parameters = inspect.signature(test).parameters
        if not name.startswith("test_") or not parameters.keys() & {"bench", "holding_bench"}:
            continue
        fact = name.removeprefix("test_")
        needs_groups = "holding_bench" in parameters
        table.expect(fact, {kind: why_not(kit, fact, needs_groups=needs_groups) for kind, kit in KITS.items()})
        for kind in KITS:
            table.note(fact, kind, passed=True)
    # As they stand in the file, which is how a reader meets them.
    lines = {
        name: test.__code__.co_firstlineno for name, test in vars(test_sources).items() if name.startswith("test_")
    }
    table.facts = dict(sorted(table.facts.items(), key=lambda item: lines[f"test_{item[0]}"]))
    return table.text()


def _line_of(function: Any) -> int:
    return int(function.__code__.co_firstlineno)


if __name__ == "__main__":
    print(promised())
