"""Source × fact: what each kind of queue was seen to do, and what it cannot."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from tests.conformance.kits import KITS, why_not
from tests.conformance.rows import rows_of


class Table:
    """Filled while the suite runs: `yes` was seen, `NO` was not, a number leads to why the queue cannot."""

    def __init__(self) -> None:
        self.facts: dict[str, dict[str, str]] = {}
        self._seen: dict[tuple[str, str], bool] = {}

    def expect(self, facts: Mapping[str, Mapping[str, str]]) -> None:
        self.facts |= {fact: dict(reasons) for fact, reasons in facts.items()}

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
        rows += [f"| {fact} | {' | '.join(cell(fact, kind) for kind in KITS)} |" for fact in self.facts]
        if notes:
            rows += ["", *(f"{number}. {note}" for number, note in enumerate(notes, 1))]
        return "\n".join(rows)


def facts_of(test: Callable[..., object]) -> dict[str, dict[str, str]]:
    """The rows that a test is → kind → why that kind cannot; '' where it can. Empty where it is no row."""
    if found := rows_of(test, list(KITS)):
        return found
    parameters = inspect.signature(test).parameters
    needs_groups = "holding_bench" in parameters
    if not needs_groups and "bench" not in parameters:
        return {}
    fact = test.__name__.removeprefix("test_")
    reasons = {kind: why_not(kit, fact, needs_groups=needs_groups) for kind, kit in KITS.items()}
    return {fact.replace("_", " "): reasons}


def promised() -> str:
    """The table as it is when every test passes: what docs/sources.md shows. `python -m tests.conformance.table`"""
    from tests.conformance import test_order, test_sources, test_whole_fleet

    table = Table()
    for module in (test_sources, test_order, test_whole_fleet):
        # As they stand in the file, which is how a reader meets them.
        for name, test in vars(module).items():
            if name.startswith("test_"):
                table.expect(facts_of(test))
    for fact in table.facts:
        for kind in KITS:
            table.note(fact, kind, passed=True)
    return table.text()


if __name__ == "__main__":
    print(promised())
